package sparklog.checkpoint

import java.io.IOException
import java.nio.ByteBuffer
import java.util.zip.CRC32C

/** One record in a batch of its own, as Kafka's magic 2 lays it out (DefaultRecordBatch). */
final case class RecordBatch(
    offset: Long,
    timestamp: Long,
    key: String,
    valueAt: Int, // position of the value in the batch
    valueLength: Int) { // -1: the file was deleted
  def isDeletion: Boolean = valueLength < 0
}

object RecordBatch {
  /** Up to and with the length field; what the length counts begins here. */
  val LogOverhead = 12
  val HeaderBytes = 61

  private val MagicAt = 16
  private val CrcAt = 17
  private val AttributesAt = 21
  private val CountAt = 57
  private val NoProducer = -1

  /** Bytes of the whole batch whose header begins at `at`; None if that can't be a batch. */
  def sizeAt(buffer: ByteBuffer, at: Int): Option[Long] = {
    val length = buffer.getInt(at + 8)
    val whole = length >= HeaderBytes - LogOverhead && buffer.get(at + MagicAt) == 2
    if (whole) Some(length.toLong + LogOverhead) else None
  }

  def offsetAt(buffer: ByteBuffer, at: Int): Long = buffer.getLong(at)
  def crcAt(buffer: ByteBuffer, at: Int): Int = buffer.getInt(at + CrcAt)

  /** Whether the CRC of the `size` bytes from `at` holds; it covers all after itself. */
  def isSound(buffer: ByteBuffer, at: Int, size: Int): Boolean = {
    val crc = new CRC32C
    crc.update(buffer.duplicate().limit(at + size).position(at + AttributesAt))
    crc.getValue.toInt == crcAt(buffer, at)
  }

  def encode(
      offset: Long, epoch: Int, timestamp: Long, key: Array[Byte], value: Array[Byte],
      valueLength: Int): ByteBuffer = {
    val body = 1 + 1 + 1 + varintBytes(key.length) + key.length +
      varintBytes(valueLength) + math.max(valueLength, 0) + 1
    val size = HeaderBytes + varintBytes(body) + body
    val out = ByteBuffer.allocate(size)
    out.putLong(offset).putInt(size - LogOverhead).putInt(epoch).put(2.toByte)
    out.putInt(0) // the CRC, when all is there
    out.putShort(0).putInt(0).putLong(timestamp).putLong(timestamp)
    out.putLong(NoProducer).putShort(NoProducer.toShort).putInt(NoProducer).putInt(1)
    putVarint(out, body)
    out.put(0.toByte).put(0.toByte).put(0.toByte) // attributes, timestamp and offset delta
    putVarint(out, key.length)
    out.put(key)
    putVarint(out, valueLength)
    if (valueLength > 0) out.put(value, 0, valueLength)
    out.put(0.toByte) // no headers
    val crc = new CRC32C
    crc.update(out.duplicate().limit(size).position(AttributesAt))
    out.putInt(CrcAt, crc.getValue.toInt)
    out.flip()
  }

  /** Parse the sound batch at `at`. An IOException if no checkpoint manager can have written it. */
  def decode(buffer: ByteBuffer, at: Int, size: Int): RecordBatch = {
    val header = buffer.duplicate().limit(at + size)
    val compressed = (header.getShort(at + AttributesAt) & 7) != 0
    if (compressed || header.getInt(at + CountAt) != 1) {
      throw new IOException("it isn't one uncompressed record")
    }
    header.position(at + HeaderBytes)
    getVarint(header) // the record's length
    header.get() // attributes
    getVarint(header)
    getVarint(header)
    val key = new Array[Byte](getVarint(header))
    header.get(key)
    val valueLength = getVarint(header)
    RecordBatch(header.getLong(at), header.getLong(at + 35), new String(key, "UTF-8"),
      header.position() - at, valueLength)
  }

  private def varintBytes(value: Int): Int = {
    val zigzag = (value << 1) ^ (value >> 31)
    1 + (31 - Integer.numberOfLeadingZeros(zigzag | 1)) / 7
  }

  private def putVarint(out: ByteBuffer, value: Int): Unit = {
    var zigzag = (value << 1) ^ (value >> 31)
    while ((zigzag & ~0x7f) != 0) {
      out.put((zigzag & 0x7f | 0x80).toByte)
      zigzag >>>= 7
    }
    out.put(zigzag.toByte)
  }

  def getVarint(in: ByteBuffer): Int = {
    var zigzag = 0
    var shift = 0
    var byte = in.get()
    while ((byte & 0x80) != 0) {
      zigzag |= (byte & 0x7f) << shift
      shift += 7
      if (shift > 28) throw new IOException("a varint doesn't end")
      byte = in.get()
    }
    zigzag |= byte << shift
    (zigzag >>> 1) ^ -(zigzag & 1)
  }
}
