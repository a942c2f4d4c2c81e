package sparklog.source

import java.io.Closeable
import java.nio.ByteBuffer
import java.nio.channels.FileChannel
import java.nio.file.{Files, NoSuchFileException, Path, StandardOpenOption}
import java.nio.file.attribute.BasicFileAttributes

import sparklog.format.{BatchHeader, RecordCursor}

/**
 * Walks the batches of one segment file after the other, each as it is when it is opened, in
 * windows that grow: a few records cost a small read, many a large one. One thread's. Source:
 * sparklog/log/partition_reader.py, `_segment`.
 */
private[source] final class SegmentReader extends Closeable {
  import SegmentReader._

  /** Of the batch at hand, which is at `batchAt` of `bytes`: valid until the next one. */
  val header = new BatchHeader
  var batchAt = 0
  /** Bytes read from files so far. */
  var bytesRead = 0L

  private var window: Array[Byte] = _
  private var nextAt = 0 // in the window: of the next batch
  private var stop = 0 // in the window: behind the bytes that were read
  private var position = 0L // in the file: of the window's first byte
  private var limit = 0L // the file's size
  private var step = FirstBytes
  private var isHinted = false // no batch was seen where the index led to

  private var path: Path = _
  private var channel: FileChannel = _
  private var key: AnyRef = _
  private var standing: LogIdentity = _

  def bytes: Array[Byte] = window

  /**
   * Go to the batch in segment `base` that holds `offset`, or before it. An IOException if there is
   * no such file. `standing` is asked whenever bytes were read.
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

  /** Whether the file, as long as it was when it was opened, ends with the batch at hand. */
  def isAtEnd: Boolean = position + nextAt >= limit

  private def goTo(place: Long): Unit = {
    position = place
    nextAt = 0
    stop = 0
    isHinted = false
  }

  /**
   * Go to the next batch that reaches `offset`, its CRC checked; false if the segment has none that
   * is whole. PlanMismatch for what isn't a batch of magic 2, or is damaged.
   */
  def next(offset: Long): Boolean = {
    while (true) {
      val status = header.read(window, nextAt, stop)
      if (status == BatchHeader.Sound) {
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

  /** Whether the file has more than the window, and all of a batch that is cut in it. */
  private def wantsMore: Boolean =
    position + stop < limit && header.sizeBytes <= limit - position - nextAt

  /** Read the file's next bytes, behind those of a batch that is cut. */
  private def fill(): Unit = {
    val kept = stop - nextAt
    val wanted = math.max(step, header.sizeBytes)
    if (wanted > HugeBytes) throw new PlanMismatch(
      s"$path at byte ${position + nextAt}: a batch of ${header.sizeBytes} bytes")
    val room = math.min(wanted.toLong, limit - position - nextAt).toInt
    val from = window
    // A batch that was larger than a window is behind: its memory goes.
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
    if (!more) limit = position + stop // the file is shorter by now
    step = math.min(step * 4, MostBytes)
    Interrupts.check()
    standing.check()
  }

  /** Whether the segment's name still is that of the file that is open. */
  def isCurrent: Boolean =
    try keyOf(path) == key
    catch { case _: NoSuchFileException => false }

  /** Give back file and memory. */
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
  /** Larger batches are Python's, which has memory of its own. */
  val HugeBytes: Int = RecordCursor.MaxPlainBytes
  /** What is read at once: the channel copies it out of memory that it keeps for the thread. */
  val SliceBytes: Int = 256 << 10

  private def keyOf(path: Path): AnyRef =
    Files.readAttributes(path, classOf[BasicFileAttributes]).fileKey
}
