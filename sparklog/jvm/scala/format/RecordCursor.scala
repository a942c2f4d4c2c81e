package sparklog.format

/**
 * Iterates over the records of batches. `open` checks the whole batch first, so that no record of a
 * damaged batch is returned; `next` allocates nothing. Records and faults are defined as in
 * sparklog/format/parser.py and decoder.py. For use by a single thread, which calls `release` at
 * the end.
 *
 * @param maxPlainBytes maximum uncompressed size of the records of a batch
 */
final class RecordCursor(maxPlainBytes: Int = RecordCursor.MaxPlainBytes) {
  import RecordCursor._
  import Varint.IntBytesMax

  private val decompressor = new Decompressor(maxPlainBytes)
  private var at = 0
  private var stop = 0
  private var left = 0 // remaining records, returned or skipped by `next`
  private var firstOffset = 0L
  private var baseOffset = 0L
  private var baseTimestampMs = 0L
  private var maxTimestampMs = 0L

  /**
   * The array that contains the fields of the records: the array given to `open`, or the
   * decompressed records.
   */
  var buffer: Array[Byte] = Array.emptyByteArray

  // The current record.
  private var offsetDelta = 0L
  private var timestampAt = 0
  private var timestampBytes = 0
  private var end = 0
  var keyAt: Int = 0
  /** -1: null. */
  var keyBytes: Int = 0
  var valueAt: Int = 0
  /** -1: null. */
  var valueBytes: Int = 0
  /**
   * The position of the first header, behind the number of headers. The last header ends with the
   * record.
   */
  var headersAt: Int = 0
  var headersCount: Int = 0

  /** The key and value of the header to which `nextHeader` moved. */
  var headerKeyAt: Int = 0
  var headerKeyBytes: Int = 0
  var headerValueAt: Int = 0
  /** -1: null. */
  var headerValueBytes: Int = 0
  private var headersLeft = 0
  private var headerEnd = 0

  /** The timestamp type of the batch. 0: the timestamps of the producer; 1: the append time. */
  var timestampType: Int = 0

  /** The message of the codec after a result of Undecodable or PlainTooLarge. */
  var reason: String = ""

  def offset: Long = baseOffset + offsetDelta

  def timestampMs: Long =
    if (timestampType == 1) maxTimestampMs
    else baseTimestampMs + Varint.get(buffer, timestampAt, timestampBytes)

  /**
   * Return the timestamp in microseconds since the epoch, as in Spark. Values out of range become
   * the nearest valid value.
   */
  def timestampMicros: Long = {
    val ms = timestampMs
    if (ms > MsMax) Long.MaxValue else if (ms < -MsMax) -Long.MaxValue else ms * 1000
  }

  def headersBytes: Int = end - headersAt

  /**
   * Open the batch at `from` of `bytes`, which `header` found to be Sound, for the records with
   * first <= offset < until. A control batch has no such records.
   *
   * Returns Sound or the number of a fault, whose text `describe` returns; `next` then returns
   * false. Records from `until` on are not checked. Cost: decompression, and a check of the fields
   * of each record.
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

  /** Move to the next record. Return false if there is none. */
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

  /** Move to the next header of the record. Return false if there is none. */
  def nextHeader(): Boolean = headersLeft > 0 && {
    headersLeft -= 1
    readHeader(headerEnd)
    true
  }

  /** Bytes of allocated memory. */
  def heldBytes: Long = decompressor.heldBytes

  /** Release all memory, also that of the codecs' libraries. The object can be used again. */
  def release(): Unit = {
    left = 0
    headersLeft = 0
    buffer = Array.emptyByteArray
    decompressor.release()
  }

  private def hasNothing(header: BatchHeader, until: Long): Boolean =
    header.lastOffset < firstOffset || baseOffset >= until || header.count == 0 && at == stop

  private def decompress(codec: Codec): Int =
    try {
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

  /** Check the records before offset `until`, which `next` may then return. */
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

  /** Find the fields of the record at `from`, except for its headers. */
  private def read(from: Int): Int = {
    val bytes = buffer
    val lengthBytes = Varint.sizeAt(bytes, from, stop, IntBytesMax)
    var here = from + lengthBytes
    val length = Varint.get(bytes, from, lengthBytes)
    if (lengthBytes == 0 || length < RecordBytesMin - 1 || length > stop - here) BadLength
    else {
      val last = here + length.toInt
      end = last
      here += 1 // attributes: none are in use
      timestampAt = here
      timestampBytes = Varint.sizeAt(bytes, here, last, Varint.LongBytesMax)
      here += timestampBytes
      val offsetBytes = Varint.sizeAt(bytes, here, last, IntBytesMax)
      offsetDelta = Varint.get(bytes, here, offsetBytes)
      if (timestampBytes == 0 || offsetBytes == 0) BadField
      else readKey(bytes, here + offsetBytes, last)
    }
  }

  private def readKey(bytes: Array[Byte], from: Int, last: Int): Int = {
    val sizeBytes = Varint.sizeAt(bytes, from, last, IntBytesMax)
    val size = Varint.get(bytes, from, sizeBytes)
    keyAt = from + sizeBytes
    if (sizeBytes == 0 || size > last - keyAt) BadSize
    else {
      keyBytes = if (size < 0) -1 else size.toInt
      readValue(bytes, keyAt + math.max(keyBytes, 0), last)
    }
  }

  private def readValue(bytes: Array[Byte], from: Int, last: Int): Int = {
    val sizeBytes = Varint.sizeAt(bytes, from, last, IntBytesMax)
    val size = Varint.get(bytes, from, sizeBytes)
    valueAt = from + sizeBytes
    if (sizeBytes == 0 || size > last - valueAt) BadSize
    else {
      valueBytes = if (size < 0) -1 else size.toInt
      val here = valueAt + math.max(valueBytes, 0)
      val countBytes = Varint.sizeAt(bytes, here, last, IntBytesMax)
      val count = Varint.get(bytes, here, countBytes)
      headersAt = here + countBytes
      headersCount = count.toInt
      if (countBytes == 0 || count < 0 || count > (last - headersAt) / HeaderBytesMin) BadHeader
      else BatchHeader.Sound
    }
  }

  /** Check the headers of the record that `read` found, and that they end with the record. */
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
    val bytes = buffer
    val keySizeBytes = Varint.sizeAt(bytes, from, end, IntBytesMax)
    val size = Varint.get(bytes, from, keySizeBytes)
    headerKeyAt = from + keySizeBytes
    if (keySizeBytes == 0 || size < 0 || size > end - headerKeyAt) BadHeader
    else {
      headerKeyBytes = size.toInt
      val here = headerKeyAt + headerKeyBytes
      val valueSizeBytes = Varint.sizeAt(bytes, here, end, IntBytesMax)
      val valueSize = Varint.get(bytes, here, valueSizeBytes)
      headerValueAt = here + valueSizeBytes
      if (valueSizeBytes == 0 || valueSize > end - headerValueAt) BadHeader
      else {
        headerValueBytes = if (valueSize < 0) -1 else valueSize.toInt
        headerEnd = headerValueAt + math.max(headerValueBytes, 0)
        BatchHeader.Sound
      }
    }
  }
}

object RecordCursor {
  /**
   * The maximum uncompressed size of a batch's records. Kafka limits only the compressed size, by
   * max.message.bytes (1 MiB). Larger batches are left to the Python reader, which is a separate
   * process.
   */
  val MaxPlainBytes: Int = 32 << 20

  private final val RecordBytesMin = 7
  private final val HeaderBytesMin = 2
  private val MsMax = Long.MaxValue / 1000

  // Results of `open` besides BatchHeader.Sound; lower numbers are in BatchHeader.
  final val TooMany = 16
  final val BadLength = 17
  final val BadField = 18
  final val BadOffsetDelta = 19
  final val BadSize = 20
  final val BadHeader = 21
  final val BytesLeft = 22
  final val Undecodable = 23
  final val PlainTooLarge = 24

  private val texts = Array(
    "more records are declared than its bytes can hold",
    "a record's length can't be right",
    "a record's timestamp or offset is cut",
    "a record's offset goes back or past the batch's last",
    "a key or value is longer than its record",
    "a record's headers are damaged or have a null key",
    "bytes are left over",
    "its compressed data are damaged",
    "its records are too large once decompressed"
  )

  def describe(status: Int): String =
    if (status < TooMany) BatchHeader.describe(status) else texts(status - TooMany)
}
