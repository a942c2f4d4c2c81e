package sparklog.source

import java.io.Closeable
import java.nio.ByteBuffer
import java.nio.channels.FileChannel
import java.nio.file.{Files, NoSuchFileException, Path, StandardOpenOption}
import java.nio.file.attribute.BasicFileAttributes

import sparklog.format.{BatchHeader, RecordCursor}

/**
 * Reads the batches of segment files in growing windows, so that a few records cost a small read,
 * and many records cost few large reads. A file is read up to the size that it has when it is
 * opened. For use by a single thread. Source: `_segment` in sparklog/log/partition_reader.py.
 */
private[source] final class SegmentReader extends Closeable {
  import SegmentReader._

  /** The header of the current batch, which is at `batchAt` of `bytes` until the next call. */
  val header = new BatchHeader
  var batchAt = 0
  /** Bytes read from files so far. */
  var bytesRead = 0L

  private var window: Array[Byte] = _
  private var nextAt = 0 // position of the next batch in the window
  private var stop = 0 // end of the bytes in the window
  private var position = 0L // position of the window in the file
  private var limit = 0L // the file's size
  private var step = FirstBytes
  private var isHinted = false // positioned by the index, and no batch read there yet

  private var path: Path = _
  private var channel: FileChannel = _
  private var key: AnyRef = _
  private var standing: LogIdentity = _

  def bytes: Array[Byte] = window

  /**
   * Open segment `base` at the batch that contains `offset`, or at a batch before it. `standing` is
   * checked after every read. Throws an IOException if the file does not exist.
   */
  def open(directory: Path, base: Long, offset: Long, standing: LogIdentity): Unit = {
    closeFile()
    val name = f"$base%020d"
    path = directory.resolve(name + ".log")
    this.standing = standing
    channel = FileChannel.open(path, StandardOpenOption.READ)
    key = keyOf(path)
    limit = channel.size
    val hint = OffsetIndex.position(directory.resolve(name + ".index"), base, offset)
    step = FirstBytes
    goTo(if (hint > 0 && hint < limit) hint else 0)
    isHinted = position > 0
  }

  /**
   * Return whether the current batch is the last of the file, up to the size when it was opened.
   */
  def isAtEnd: Boolean = position + nextAt >= limit

  private def goTo(place: Long): Unit = {
    position = place
    nextAt = 0
    stop = 0
    isHinted = false
  }

  /**
   * Go to the next batch that ends at or after `offset`, and check its CRC. Return false if there
   * is no complete one. Throws a PlanMismatch for damage or another magic than 2.
   */
  def next(offset: Long): Boolean = {
    while (true) {
      val status = header.read(window, nextAt, stop)
      if (status == BatchHeader.Sound) {
        // An index entry has no checksum: if it leads to a wrong place, the segment is read from
        // its start.
        if (isHinted && header.baseOffset > offset) goTo(0)
        else {
          isHinted = false
          batchAt = nextAt
          nextAt += header.sizeBytes
          if (header.lastOffset >= offset) return true
        }
      } else if (status == BatchHeader.Cut && wantsMore) fill()
      else if (isHinted) goTo(0)
      else if (status == BatchHeader.Cut) return false
      else throw new PlanMismatch(
        s"$path at byte ${position + nextAt}: ${BatchHeader.describe(status)}")
    }
    false
  }

  /** Return whether the file continues behind the window with the rest of an incomplete batch. */
  private def wantsMore: Boolean =
    position + stop < limit && header.sizeBytes <= limit - position - nextAt

  /** Read the file's next bytes behind an incomplete batch. */
  private def fill(): Unit = {
    val kept = stop - nextAt
    val wanted = math.max(step, header.sizeBytes)
    if (wanted > HugeBytes) throw new PlanMismatch(
      s"$path at byte ${position + nextAt}: the batch has ${header.sizeBytes} bytes, which is " +
        "too large for the JVM")
    val room = math.min(wanted.toLong, limit - position - nextAt).toInt
    val from = window
    // Release the memory of a batch that was larger than a window.
    if (window == null || window.length < room || window.length > math.max(wanted, MostBytes)) {
      window = new Array[Byte](math.max(room, math.min(wanted, MostBytes)))
    }
    if (kept > 0) System.arraycopy(from, nextAt, window, 0, kept)
    position += nextAt
    nextAt = 0
    stop = kept
    val buffer = ByteBuffer.wrap(window)
    var more = true
    while (more && stop < room) {
      buffer.limit(math.min(room, stop + SliceBytes)).position(stop)
      val count = channel.read(buffer, position + stop)
      if (count > 0) stop += count else more = false
    }
    bytesRead += stop - kept
    if (!more) limit = position + stop // the file was truncated
    step = math.min(step * 4, MostBytes)
    Interrupts.check()
    standing.check()
  }

  /** Return whether the path of the segment still refers to the open file. */
  def isCurrent: Boolean =
    try keyOf(path) == key
    catch { case _: NoSuchFileException => false }

  /** Close the file and release the memory. */
  override def close(): Unit = {
    closeFile()
    window = null
    nextAt = 0
    stop = 0
  }

  private def closeFile(): Unit = if (channel != null) {
    channel.close()
    channel = null
  }
}

private object SegmentReader {
  val FirstBytes: Int = 64 << 10
  val MostBytes: Int = 2 << 20
  /** Python reads larger batches, in the memory of its own process. */
  val HugeBytes: Int = RecordCursor.MaxPlainBytes
  /** Bytes per read: the channel copies them from native memory that it keeps for the thread. */
  val SliceBytes: Int = 256 << 10

  private def keyOf(path: Path): AnyRef =
    Files.readAttributes(path, classOf[BasicFileAttributes]).fileKey
}
