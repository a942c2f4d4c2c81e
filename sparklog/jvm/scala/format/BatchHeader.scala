package sparklog.format

/**
 * Reads and checks the header of a record batch. One object is used for all batches of a scan.
 * Layout and checks are the same as in sparklog/format/batch.py and in read_header of scan.py.
 */
final class BatchHeader {
  import BatchHeader._

  var baseOffset: Long = 0
  /**
   * The last offset minus the base offset. Compaction may have removed the record of the last
   * offset.
   */
  var lastOffsetDelta: Int = 0
  /** The size of the whole batch in bytes. */
  var sizeBytes: Int = 0
  var leaderEpoch: Int = 0
  var magic: Int = 0
  var attributes: Int = 0
  var baseTimestampMs: Long = 0
  var maxTimestampMs: Long = 0
  var producerId: Long = 0
  var producerEpoch: Int = 0
  var baseSequence: Int = 0
  /** The number of records in the batch. */
  var count: Int = 0

  def lastOffset: Long = baseOffset + lastOffsetDelta
  /** The offset at which readers continue. */
  def nextOffset: Long = lastOffset + 1
  def codec: Codec = Codec.of(attributes & Codec.Mask)
  def isCompressed: Boolean = (attributes & Codec.Mask) != 0
  def isControl: Boolean = (attributes & Control) != 0
  def isTransactional: Boolean = (attributes & Transactional) != 0
  def hasLogAppendTime: Boolean = (attributes & LogAppendTime) != 0

  /**
   * Read and check the batch that begins at `at` and must end at or before `stop`.
   *
   * Returns Sound; Cut if the batch is incomplete (`sizeBytes` is then its size, or 0 if unknown);
   * Legacy for magic 0 or 1, of which only magic and size are read; or the number of a fault, whose
   * text `describe` returns. Only Sound sets all fields.
   */
  def read(bytes: Array[Byte], at: Int, stop: Int): Int = {
    val left = stop - at
    sizeBytes = 0
    if (left <= MagicEnd) Cut
    else {
      val length = intAt(bytes, at + LengthAt)
      magic = bytes(at + MagicAt)
      if (length < LegacyBytesMin) BadLength
      else if (length > left - LogOverhead) {
        sizeBytes = math.min(length.toLong + LogOverhead, Int.MaxValue).toInt
        Cut
      } else {
        sizeBytes = length + LogOverhead
        if (magic == 0 || magic == 1) Legacy
        else if (magic != Magic) BadMagic
        else if (sizeBytes < HeaderBytes) BadLength
        else readFields(bytes, at)
      }
    }
  }

  private def readFields(bytes: Array[Byte], at: Int): Int = {
    baseOffset = longAt(bytes, at)
    leaderEpoch = intAt(bytes, at + LeaderEpochAt)
    attributes = shortAt(bytes, at + AttributesAt)
    lastOffsetDelta = intAt(bytes, at + LastOffsetDeltaAt)
    baseTimestampMs = longAt(bytes, at + BaseTimestampAt)
    maxTimestampMs = longAt(bytes, at + MaxTimestampAt)
    producerId = longAt(bytes, at + ProducerIdAt)
    producerEpoch = shortAt(bytes, at + ProducerEpochAt)
    baseSequence = intAt(bytes, at + BaseSequenceAt)
    count = intAt(bytes, at + CountAt)
    if (baseOffset < 0) BadOffset
    else if (!hasGoodCrc(bytes, at, sizeBytes)) BadCrc
    else if (!Codec.isKnown(attributes & Codec.Mask)) BadCodec
    else if (lastOffsetDelta < 0 || count < 0 || count > lastOffsetDelta + 1L) BadCount
    else if (baseOffset > Long.MaxValue - lastOffsetDelta) TooHigh
    else Sound
  }
}

object BatchHeader {
  /** The size of the base offset and the length field, which the length field does not count. */
  final val LogOverhead = 12
  final val HeaderBytes = 61
  final val Magic = 2

  final val LengthAt = 8
  final val LeaderEpochAt = 12
  final val MagicAt = 16
  final val CrcAt = 17
  final val AttributesAt = 21
  final val LastOffsetDeltaAt = 23
  final val BaseTimestampAt = 27
  final val MaxTimestampAt = 35
  final val ProducerIdAt = 43
  final val ProducerEpochAt = 51
  final val BaseSequenceAt = 53
  final val CountAt = 57

  final val LogAppendTime = 0x08
  final val Transactional = 0x10
  final val Control = 0x20

  /** If no more bytes than this are left, the scan ends without an error, as in Kafka. */
  private final val MagicEnd = 17
  /** LegacyRecord.RECORD_OVERHEAD_V0: a smaller length is invalid for every magic. */
  private final val LegacyBytesMin = 14

  /** Results of `read`. */
  final val Sound = 0
  final val Cut = 1
  final val Legacy = 2
  final val BadLength = 3
  final val BadMagic = 4
  final val BadOffset = 5
  final val BadCrc = 6
  final val BadCodec = 7
  final val BadCount = 8
  final val TooHigh = 9

  private val texts = Array(
    "the batch is valid",
    "the batch is incomplete",
    "the batch has magic 0 or 1",
    "the length of the batch is less than that of a header",
    "the magic of the batch is unknown",
    "the base offset of the batch is negative",
    "the CRC of the batch does not match",
    "the compression codec of the batch is unknown",
    "the batch has more records than offsets",
    "the offsets of the batch are too large"
  )

  def describe(status: Int): String = texts(status)

  def baseOffsetAt(bytes: Array[Byte], at: Int): Long = longAt(bytes, at)
  def crcAt(bytes: Array[Byte], at: Int): Int = intAt(bytes, at + CrcAt)

  /**
   * Return the CRC of the batch of `sizeBytes` bytes at `at`, computed from all bytes behind the
   * CRC field.
   */
  def crcOf(bytes: Array[Byte], at: Int, sizeBytes: Int): Int =
    Crc32c.of(bytes, at + AttributesAt, sizeBytes - AttributesAt)

  def hasGoodCrc(bytes: Array[Byte], at: Int, sizeBytes: Int): Boolean =
    crcOf(bytes, at, sizeBytes) == crcAt(bytes, at)

  def shortAt(bytes: Array[Byte], at: Int): Int = (bytes(at) << 8) | (bytes(at + 1) & 0xff)

  def intAt(bytes: Array[Byte], at: Int): Int =
    (bytes(at) << 24) | ((bytes(at + 1) & 0xff) << 16) | ((bytes(at + 2) & 0xff) << 8) |
      (bytes(at + 3) & 0xff)

  def longAt(bytes: Array[Byte], at: Int): Long =
    (intAt(bytes, at).toLong << 32) | (intAt(bytes, at + 4) & 0xffffffffL)

  def putShort(bytes: Array[Byte], at: Int, value: Int): Unit = {
    bytes(at) = (value >> 8).toByte
    bytes(at + 1) = value.toByte
  }

  def putInt(bytes: Array[Byte], at: Int, value: Int): Unit = {
    putShort(bytes, at, value >> 16)
    putShort(bytes, at + 2, value)
  }

  def putLong(bytes: Array[Byte], at: Int, value: Long): Unit = {
    putInt(bytes, at, (value >> 32).toInt)
    putInt(bytes, at + 4, value.toInt)
  }
}
