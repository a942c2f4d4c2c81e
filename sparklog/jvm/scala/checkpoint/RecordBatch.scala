package sparklog.checkpoint

import java.io.IOException
import java.nio.ByteBuffer

import org.apache.spark.unsafe.Platform

import sparklog.format.{BatchBuilder, BatchHeader, Codec, Compressor, Varint}
import sparklog.format.BatchHeader._

/** A batch with one record, in the layout of Kafka's magic 2 (DefaultRecordBatch). */
final case class RecordBatch(
    offset: Long,
    timestamp: Long,
    key: String,
    valueAt: Int, // position of the value in the batch
    valueLength: Int, // -1: the file was deleted
    tag: Int) { // identifies the partition that the batch was written to
  def isDeletion: Boolean = valueLength < 0
}

object RecordBatch {
  /** The tag of batches from older versions. */
  val NoTag: Int = -1

  private val FromStart = Platform.BYTE_ARRAY_OFFSET.toLong

  /**
   * Return the size of the batch whose header begins at `at`, or None if the bytes are not a
   * header.
   */
  def sizeAt(buffer: ByteBuffer, at: Int): Option[Long] = {
    val length = buffer.getInt(at + LengthAt)
    val whole = length >= HeaderBytes - LogOverhead && buffer.get(at + MagicAt) == Magic
    if (whole) Some(length.toLong + LogOverhead) else None
  }

  def offsetAt(buffer: ByteBuffer, at: Int): Long = buffer.getLong(at)
  def crcAt(buffer: ByteBuffer, at: Int): Int = buffer.getInt(at + CrcAt)

  /** Return whether the CRC of the batch of `size` bytes at `at` matches. */
  def isSound(buffer: ByteBuffer, at: Int, size: Int): Boolean =
    BatchHeader.hasGoodCrc(buffer.array, buffer.arrayOffset + at, size)

  /**
   * Encode a batch of one record in the bytes from 0 to the limit. A valueLength of -1 is a
   * deletion.
   */
  def encode(
      offset: Long, epoch: Int, timestamp: Long, key: Array[Byte], value: Array[Byte],
      valueLength: Int, tag: Int): ByteBuffer = {
    val plain = Compressor(Codec.Uncompressed, None)
    val builder = new BatchBuilder(
      plain, batchBytes = Int.MaxValue, maxMessageBytes = Int.MaxValue, baseSequence = tag)
    builder.append(timestamp, key, FromStart, key.length, value, FromStart, valueLength, null, 0)
    builder.close(offset).putInt(LeaderEpochAt, epoch) // the CRC does not cover the epoch
  }

  /**
   * Parse the batch at `at`, whose CRC is valid. Throws an IOException if no checkpoint manager can
   * have written the batch.
   */
  def decode(buffer: ByteBuffer, at: Int, size: Int): RecordBatch = {
    val header = buffer.duplicate().limit(at + size)
    val isCompressed = (header.getShort(at + AttributesAt) & Codec.Mask) != 0
    if (isCompressed || header.getInt(at + CountAt) != 1) {
      throw new IOException("the batch is not a single uncompressed record")
    }
    header.position(at + HeaderBytes)
    getVarint(header) // the record's length
    header.get() // attributes
    getVarint(header)
    getVarint(header)
    val key = getKey(header)
    val valueLength = getVarint(header).toInt
    RecordBatch(header.getLong(at), header.getLong(at + MaxTimestampAt), new String(key, "UTF-8"),
      header.position() - at, valueLength, header.getInt(at + BaseSequenceAt))
  }

  /** Read a length and that number of bytes. Throws an IOException if the bytes end before. */
  def getKey(in: ByteBuffer): Array[Byte] = {
    val length = getVarint(in)
    if (length < 0 || length > in.remaining) {
      throw new IOException(s"the key of a record has an impossible length of $length bytes")
    }
    val key = new Array[Byte](length.toInt)
    in.get(key)
    key
  }

  /** Read a varint of up to five bytes. Throws an IOException if the varint does not end. */
  def getVarint(in: ByteBuffer): Long = {
    val at = in.arrayOffset + in.position()
    val size = Varint.sizeAt(in.array, at, in.arrayOffset + in.limit(), Varint.IntBytesMax)
    if (size == 0) throw new IOException("a varint in the record does not end")
    in.position(in.position() + size)
    Varint.get(in.array, at, size)
  }
}
