package sparklog.format

/**
 * The records of one batch after the other. `open` looks through the whole batch, so that nothing
 * of a damaged one is given out; `next` steps from record to record and allocates nothing. What is
 * a record, what is a fault and of which kind is as in sparklog/format/parser.py and decoder.py.
 *
 * One thread's; `release` it at the end. `maxPlainBytes`: of one batch's records, decompressed.
 */
final class RecordCursor(maxPlainBytes: Int = RecordCursor.MaxPlainBytes) {
  import RecordCursor._

  private val decompressor = new Decompressor(maxPlainBytes)
  private var at = 0
  private var stop = 0
  private var left = 0 // records that `next` may step to or over
  private var firstOffset = 0L
  private var baseOffset = 0L
  private var baseTimestampMs = 0L
  private var maxTimestampMs = 0L

  /** Holds the fields of the batch's records: the array given, or one of its own. */
  var buffer: Array[Byte] = Array.emptyByteArray

  // The record at hand.
  private var offsetDelta = 0L
  private var timestampDelta = 0L
  private var end = 0
  var keyAt: Int = 0
  /** -1: null. */
  var keyBytes: Int = 0
  var valueAt: Int = 0
  /** -1: null. */
  var valueBytes: Int = 0
  /** Of the first header, behind their count; the last ends with the record. */
  var headersAt: Int = 0
  var headersCount: Int = 0

  /** The header that `nextHeader` stepped to. */
  var headerKeyAt: Int = 0
  var headerKeyBytes: Int = 0
  var headerValueAt: Int = 0
  /** -1: null. */
  var headerValueBytes: Int = 0
  private var headersLeft = 0
  private var headerEnd = 0

  /** 0: the time that its producer gave; 1: when it was appended. Of all records of the batch. */
  var timestampType: Int = 0

  /** What came with Undecodable or PlainTooLarge: the codec's words. */
  var reason: String = ""

  def offset: Long = baseOffset + offsetDelta

  def timestampMs: Long =
    if (timestampType == 1) maxTimestampMs else baseTimestampMs + timestampDelta

  /** As Spark has times, since the epoch; what doesn't fit becomes the nearest that does. */
  def timestampMicros: Long = {
    val ms = timestampMs
    if (ms > MsMax) Long.MaxValue else if (ms < -MsMax) -Long.MaxValue else ms * 1000
  }

  def headersBytes: Int = end - headersAt

  /**
   * Begin with the batch at `from` of `bytes`, which `header` found to be Sound, and of it with the
   * records with first <= offset < until. A control batch has none.
   *
   * Returns: Sound, or a fault, whose text `describe` has; then `next` gives nothing. What lies
   * behind `until` isn't looked at. Cost: decompression, and a look at each record's fields.
   */
  def open(bytes: Array[Byte], from: Int, header: BatchHeader, first: Long, until: Long): Int = {
    left = 0
    headersLeft = 0
    buffer = bytes
    at = from + BatchHeader.HeaderBytes
    stop = from + header.sizeBytes
    firstOffset = first
    baseOffset = header.baseOffset
    baseTimestampMs = header.baseTimestampMs
    maxTimestampMs = header.maxTimestampMs
    timestampType = if (header.hasLogAppendTime) 1 else 0
    if (header.isControl || header.isCompressed && hasNothing(header, until)) BatchHeader.Sound
    else {
      val status = if (header.isCompressed) decompress(header.codec) else BatchHeader.Sound
      if (status != BatchHeader.Sound) status
      else check(header.count, header.lastOffsetDelta, until)
    }
  }

  /** Step to the next record; false if there is none. */
  def next(): Boolean = {
    var found = false
    while (!found && left > 0) {
      left -= 1
      read(at)
      at = end
      found = offset >= firstOffset
    }
    headersLeft = headersCount
    headerEnd = headersAt
    found
  }

  /** Step to the record's next header; false if there is none. */
  def nextHeader(): Boolean = headersLeft > 0 && {
    headersLeft -= 1
    readHeader(headerEnd)
    true
  }

  /** Bytes of memory that it keeps. */
  def heldBytes: Long = decompressor.heldBytes

  /** Give its memory back, that of the codecs' libraries too; it can be used again afterwards. */
  def release(): Unit = {
    left = 0
    headersLeft = 0
    buffer = Array.emptyByteArray
    decompressor.release()
  }

  private def hasNothing(header: BatchHeader, until: Long): Boolean =
    header.lastOffset < firstOffset || baseOffset >= until || header.count == 0 && at == stop

  private def decompress(codec: Codec): Int = try {
    stop = decompressor(codec, buffer, at, stop - at)
    buffer = decompressor.buffer
    at = 0
    BatchHeader.Sound
  } catch {
    case e: DamagedData =>
      reason = e.getMessage
      Undecodable
    case e: TooLarge =>
      reason = e.getMessage
      PlainTooLarge
  }

  /** Look at the records up to `until`; `next` may step to those before it. */
  private def check(count: Int, lastDelta: Int, until: Long): Int = {
    var status = if (count > (stop - at) / RecordBytesMin) TooMany else BatchHeader.Sound
    var from = at
    var done = 0
    var previous = -1L
    var isPast = false
    while (status == BatchHeader.Sound && !isPast && done < count) {
      status = read(from)
      if (status == BatchHeader.Sound) {
        if (offsetDelta <= previous || offsetDelta > lastDelta) status = BadOffsetDelta
        else if (baseOffset + offsetDelta >= until) isPast = true
        else {
          status = checkHeaders()
          previous = offsetDelta
          from = end
          done += 1
        }
      }
    }
    if (status == BatchHeader.Sound && !isPast && from != stop) status = BytesLeft
    if (status == BatchHeader.Sound) left = done
    status
  }

  /** Find the fields of the record at `from`, up to its headers. */
  private def read(from: Int): Int = {
    val bytes = buffer
    val length = Varint.read(bytes, from, stop)
    var here = from + Varint.sizeOf(length)
    val size = Varint.valueOf(length)
    if (length == Varint.Cut || size < RecordBytesMin - 1 || size > stop - here) BadLength
    else {
      val last = here + size.toInt
      end = last
      here += 1 // attributes: none are in use
      val timestampBytes = Varint.sizeAt(bytes, here, last, Varint.LongBytesMax)
      timestampDelta = Varint.get(bytes, here, timestampBytes)
      here += timestampBytes
      val delta = Varint.read(bytes, here, last)
      offsetDelta = Varint.valueOf(delta)
      here += Varint.sizeOf(delta)
      if (timestampBytes == 0 || delta == Varint.Cut) BadField
      else {
        val key = Varint.read(bytes, here, last)
        here += Varint.sizeOf(key)
        keyAt = here
        if (key == Varint.Cut || Varint.valueOf(key) > last - here) BadSize
        else {
          keyBytes = math.max(Varint.valueOf(key), -1L).toInt
          readValue(bytes, here + math.max(keyBytes, 0), last)
        }
      }
    }
  }

  private def readValue(bytes: Array[Byte], from: Int, last: Int): Int = {
    val value = Varint.read(bytes, from, last)
    var here = from + Varint.sizeOf(value)
    valueAt = here
    if (value == Varint.Cut || Varint.valueOf(value) > last - here) BadSize
    else {
      valueBytes = math.max(Varint.valueOf(value), -1L).toInt
      here += math.max(valueBytes, 0)
      val headers = Varint.read(bytes, here, last)
      here += Varint.sizeOf(headers)
      val count = Varint.valueOf(headers)
      headersAt = here
      if (headers == Varint.Cut || count < 0 || count > (last - here) / HeaderBytesMin) BadHeader
      else {
        headersCount = count.toInt
        BatchHeader.Sound
      }
    }
  }

  /** Look at the headers of the record that `read` found, and at its end. */
  private def checkHeaders(): Int = {
    var status = BatchHeader.Sound
    var count = headersCount
    headerEnd = headersAt
    while (status == BatchHeader.Sound && count > 0) {
      status = readHeader(headerEnd)
      count -= 1
    }
    if (status == BatchHeader.Sound && headerEnd != end) BytesLeft else status
  }

  private def readHeader(from: Int): Int = {
    val key = Varint.read(buffer, from, end)
    headerKeyAt = from + Varint.sizeOf(key)
    val size = Varint.valueOf(key)
    if (key == Varint.Cut || size < 0 || size > end - headerKeyAt) BadHeader
    else {
      headerKeyBytes = size.toInt
      val value = Varint.read(buffer, headerKeyAt + headerKeyBytes, end)
      headerValueAt = headerKeyAt + headerKeyBytes + Varint.sizeOf(value)
      if (value == Varint.Cut || Varint.valueOf(value) > end - headerValueAt) BadHeader
      else {
        headerValueBytes = math.max(Varint.valueOf(value), -1L).toInt
        headerEnd = headerValueAt + math.max(headerValueBytes, 0)
        BatchHeader.Sound
      }
    }
  }
}

object RecordCursor {
  /**
   * Of a batch's records, decompressed. Kafka bounds a batch by max.message.bytes (1 MiB) as it is
   * compressed; who needs more than this takes the Python reader, which has a process of its own.
   */
  val MaxPlainBytes: Int = 32 << 20

  private val RecordBytesMin = 7
  private val HeaderBytesMin = 2
  private val MsMax = Long.MaxValue / 1000

  // What `open` returns beside BatchHeader.Sound; BatchHeader has the numbers below.
  val TooMany = 16
  val BadLength = 17
  val BadField = 18
  val BadOffsetDelta = 19
  val BadSize = 20
  val BadHeader = 21
  val BytesLeft = 22
  val Undecodable = 23
  val PlainTooLarge = 24

  private val texts = Array(
    "more records are declared than its bytes can hold", "a record's length can't be right",
    "a record's timestamp or offset is cut",
    "a record's offset goes back or past the batch's last",
    "a key or value is longer than its record",
    "a record's headers are damaged or have a null key", "bytes are left over",
    "its compressed data are damaged", "its records are too large once decompressed")

  def describe(status: Int): String =
    if (status < TooMany) BatchHeader.describe(status) else texts(status - TooMany)
}
