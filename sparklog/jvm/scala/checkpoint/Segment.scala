package sparklog.checkpoint

import java.io.IOException
import java.nio.ByteBuffer
import java.nio.channels.FileChannel
import java.nio.file.{Files, NoSuchFileException, Path, StandardOpenOption}
import java.nio.file.attribute.BasicFileAttributes

import sparklog.format.BatchHeader

/**
 * A segment file. While the file is open, its inode can't be reused. While it is closed, its last
 * batch shows whether the path still refers to the same file.
 */
final class Segment(val path: Path) {
  private var opened: Option[FileChannel] = None
  private var last: Option[Segment.Tail] = None
  /** The position up to which the batches were read, or skipped as damaged. */
  var end: Long = 0
  channel

  val inode: AnyRef = Segment.inodeOf(path)

  def channel: FileChannel = opened.getOrElse {
    opened = Some(Segment.open(path))
    opened.get
  }

  def rests: Boolean = opened.isEmpty

  /** The offset in the name of the file. */
  def base: Long = path.getFileName.toString.stripSuffix(Segment.Suffix).toLong

  /** Open the file again. Return false if the path refers to another file now. */
  def awake(): Boolean =
    try {
      // The inode may have been reused. Cleaning moves every batch behind the first removed one to
      // a lower position, so the same last batch at the same position proves that the file is
      // unchanged.
      Segment.inodeOf(path) == inode && channel.size >= end && last.forall { tail =>
        val header = read(tail.position, BatchHeader.HeaderBytes)
        RecordBatch.offsetAt(header, 0) == tail.offset && RecordBatch.crcAt(header, 0) == tail.crc
      }
    } catch { case _: NoSuchFileException => false }

  /** Remember the batch at `position` as the last one. The batch is in `buffer`, from `at` on. */
  def lastIs(position: Long, buffer: ByteBuffer, at: Int): Unit =
    last = Some(Segment.Tail(
        position, RecordBatch.offsetAt(buffer, at), RecordBatch.crcAt(buffer, at)))

  def read(position: Long, bytes: Int): ByteBuffer = {
    val buffer = ByteBuffer.allocate(bytes)
    while (buffer.hasRemaining) {
      if (channel.read(buffer, position + buffer.position()) < 0) {
        throw new IOException(
          s"$path has only ${channel.size} bytes; bytes up to ${position + bytes} were expected")
      }
    }
    buffer.flip()
  }

  def append(batch: ByteBuffer): Unit = {
    val bytes = batch.duplicate()
    while (bytes.hasRemaining) channel.write(bytes, end + bytes.position())
  }

  def close(): Unit = {
    opened.foreach(_.close())
    opened = None
  }

  /**
   * Pass each valid batch from `end` on to `seen(position, bytes, at, size)`. Return the first
   * damage, or None at the end of the file.
   */
  def walk(seen: (Long, ByteBuffer, Int, Int) => Unit): Option[Damage] = {
    var window = 1 << 16
    var damage: Option[Damage] = None
    val size = channel.size
    while (damage.isEmpty && end < size) {
      val buffer = read(end, math.min(window.toLong, size - end).toInt)
      var at = 0
      var more = false
      while (!more && damage.isEmpty && at < buffer.limit()) {
        val left = size - end
        val known = buffer.limit() - at
        if (left < BatchHeader.HeaderBytes) {
          damage = Some(Damage(this, end, short = true))
        } else if (known < BatchHeader.HeaderBytes) {
          more = true
        } else RecordBatch.sizeAt(buffer, at) match {
          case None => damage = Some(Damage(this, end, short = false))
          case Some(bytes) if bytes > left => damage = Some(Damage(this, end, short = true))
          case Some(bytes) if bytes > known =>
            window = math.max(window, bytes.toInt)
            more = true
          case Some(bytes) if !RecordBatch.isSound(buffer, at, bytes.toInt) =>
            damage = Some(Damage(this, end, short = false))
          case Some(bytes) =>
            seen(end, buffer, at, bytes.toInt)
            at += bytes.toInt
            end += bytes
        }
      }
      window = math.max(window, 1 << 22)
    }
    damage
  }
}

object Segment {
  val Suffix = ".log"

  /** The position of a batch, and the offset and CRC that identify the batch. */
  private final case class Tail(position: Long, offset: Long, crc: Int)

  private def inodeOf(path: Path): AnyRef =
    Files.readAttributes(path, classOf[BasicFileAttributes]).fileKey()

  /** Open the file, for writing too if this process has the permission. */
  private def open(path: Path): FileChannel =
    if (Files.isWritable(path)) {
      FileChannel.open(path, StandardOpenOption.READ, StandardOpenOption.WRITE)
    } else FileChannel.open(path, StandardOpenOption.READ)

  def pathOf(directory: Path, baseOffset: Long): Path =
    directory.resolve(f"$baseOffset%020d$Suffix")

  /** Return the paths of the segments in `directory`, in the order of their offsets. */
  def list(directory: Path): Seq[Path] = {
    val entries = Files.newDirectoryStream(directory, "*" + Suffix)
    try {
      val found = Seq.newBuilder[Path]
      entries.forEach(p => found += p)
      found.result().sortBy(_.getFileName.toString)
    } finally entries.close()
  }
}

/**
 * Bytes at `position` of a segment that are not a valid batch. `short`: the file ends before the
 * batch does.
 */
final case class Damage(segment: Segment, position: Long, short: Boolean) {
  /** Whether a valid batch follows anywhere. Then the damage is not an interrupted write. */
  def isFollowed: Boolean = next(rest).isDefined

  private def rest: ByteBuffer = {
    val size = segment.channel.size
    segment.read(position, math.min(size - position, Int.MaxValue - 16L).toInt)
  }

  /** Return the position of the next valid batch in `bytes`. */
  private def next(bytes: ByteBuffer): Option[Int] =
    (1 to bytes.limit() - BatchHeader.HeaderBytes).find { at =>
      RecordBatch.sizeAt(bytes, at).exists { size =>
        size <= bytes.limit() - at && RecordBatch.isSound(bytes, at, size.toInt)
      }
    }

  /**
   * Return the records of the damaged batches and the position of the next valid batch. None if the
   * records can't be determined, or if no batch or segment follows. `first`: the offset of the
   * first damaged record; `base`: the base offset of the next segment, if there is one; `tag`: the
   * tag of the partition.
   */
  def examine(first: Long, base: Option[Long], tag: Int): Option[(Seq[DamagedRecord], Long)] = {
    val bytes = rest
    val until = next(bytes)
    val end = until.map(at => bytes.getLong(at)).orElse(base)
    end.flatMap { end =>
      val raw = bytes.array.slice(0, until.getOrElse(bytes.limit()))
      DamagedRecord.examine(raw, position, first, end, tag).map(_ -> (position + raw.length))
    }
  }

  def error(reason: String): IOException = new IOException(
    s"${segment.path} is damaged at position $position: $reason. With the query stopped, " +
      "run `sparklog checkpoint verify --repair CHECKPOINT`, which keeps the valid records and " +
      "reports where the query can continue; or restore the checkpoint from a copy")
}
