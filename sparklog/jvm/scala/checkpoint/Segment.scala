package sparklog.checkpoint

import java.io.IOException
import java.nio.ByteBuffer
import java.nio.channels.FileChannel
import java.nio.file.{Files, NoSuchFileException, Path, StandardOpenOption}
import java.nio.file.attribute.BasicFileAttributes

import sparklog.format.BatchHeader

/**
 * A segment file. While it is open, its inode can't be reused. While it is closed, its last batch
 * shows whether it is still the same file.
 */
final class Segment(val path: Path) {
  private var opened: Option[FileChannel] = None
  private var last: Option[Segment.Tail] = None
  /** The position up to which the bytes were read and are valid, or skipped as damaged. */
  var end: Long = 0
  channel

  val inode: AnyRef = Segment.inodeOf(path)

  def channel: FileChannel = opened.getOrElse {
    opened = Some(Segment.open(path))
    opened.get
  }

  def rests: Boolean = opened.isEmpty

  /** The offset in its name. */
  def base: Long = path.getFileName.toString.stripSuffix(Segment.Suffix).toLong

  /**
   * Open the file again; return false if it is another file. Cleaning moves every batch behind the
   * first removed one to a lower position, so the last batch at its old position proves the
   * identity.
   */
  def awake(): Boolean =
    try {
      Segment.inodeOf(path) == inode && channel.size >= end && last.forall { tail =>
        val header = read(tail.position, BatchHeader.HeaderBytes)
        RecordBatch.offsetAt(header, 0) == tail.offset && RecordBatch.crcAt(header, 0) == tail.crc
      }
    } catch { case _: NoSuchFileException => false }

  /** Record the batch at `position`, in `buffer` from `at` on, as the last one. */
  def lastIs(position: Long, buffer: ByteBuffer, at: Int): Unit =
    last = Some(Segment.Tail(
        position, RecordBatch.offsetAt(buffer, at), RecordBatch.crcAt(buffer, at)))

  def read(position: Long, bytes: Int): ByteBuffer = {
    val buffer = ByteBuffer.allocate(bytes)
    while (buffer.hasRemaining) {
      if (channel.read(buffer, position + buffer.position()) < 0) {
        throw new IOException(s"$path ends at ${channel.size}, before ${position + bytes}")
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
   * Pass each whole batch from `end` on to `seen(position, bytes, at, size)`; return the damage, if
   * any.
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

  /** The position of a batch, with its offset and CRC as identity. */
  private final case class Tail(position: Long, offset: Long, crc: Int)

  private def inodeOf(path: Path): AnyRef =
    Files.readAttributes(path, classOf[BasicFileAttributes]).fileKey()

  /** Open the file; readers need no write permission. */
  private def open(path: Path): FileChannel =
    if (Files.isWritable(path)) {
      FileChannel.open(path, StandardOpenOption.READ, StandardOpenOption.WRITE)
    } else FileChannel.open(path, StandardOpenOption.READ)

  def pathOf(directory: Path, baseOffset: Long): Path =
    directory.resolve(f"$baseOffset%020d$Suffix")

  /** The paths of the segments in `directory`, in order. */
  def list(directory: Path): Seq[Path] = {
    val entries = Files.newDirectoryStream(directory, "*" + Suffix)
    try {
      val found = Seq.newBuilder[Path]
      entries.forEach(p => found += p)
      found.result().sortBy(_.getFileName.toString)
    } finally entries.close()
  }
}

/** Bytes at `position` that are not a whole batch; `short`: the file ends before the batch does. */
final case class Damage(segment: Segment, position: Long, short: Boolean) {
  /** Whether a whole batch follows anywhere; then this is not an interrupted write. */
  def isFollowed: Boolean = next(rest).isDefined

  /** The bytes from here on. */
  private def rest: ByteBuffer = {
    val size = segment.channel.size
    segment.read(position, math.min(size - position, Int.MaxValue - 16L).toInt)
  }

  /** The position of the next whole batch in the bytes from here on. */
  private def next(bytes: ByteBuffer): Option[Int] =
    (1 to bytes.limit() - BatchHeader.HeaderBytes).find { at =>
      RecordBatch.sizeAt(bytes, at).exists { size =>
        size <= bytes.limit() - at && RecordBatch.isSound(bytes, at, size.toInt)
      }
    }

  /**
   * Return the records of the damaged batches and the position of the next whole one, or None if
   * they can't be determined or nothing follows. `first`: the first damaged offset; `base`: of the
   * next segment, if there is one; `tag`: of the partition.
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
      "`sparklog checkpoint verify --repair CHECKPOINT` keeps what is whole and says what that " +
      "means for the query; or restore the checkpoint from a copy")
}
