package sparklog.format

import java.nio.ByteBuffer

import org.apache.spark.unsafe.Platform

/**
 * Frames records as record batches (message format 2), one batch after the other, like
 * sparklog/format/records.py. Call `append` until the batch is full, then `close`, and so on. The
 * memory grows with the batch and is reused. Not thread-safe.
 *
 * @param compressor may be shared by all builders of a thread; its creator closes it
 * @param batchBytes target size of the records of a batch before compression (batch.size); a larger
 *   record gets a batch of its own
 * @param maxMessageBytes maximum size of a complete batch as it is stored (max.message.bytes)
 * @param baseSequence the base sequence of each batch; Kafka ignores it without a producer
 */
final class BatchBuilder(
    compressor: Compressor, batchBytes: Int, maxMessageBytes: Int,
    baseSequence: Int = -1) {
  import BatchBuilder._
  import BatchHeader.HeaderBytes

  require(
    batchBytes >= 1 && maxMessageBytes > HeaderBytes,
    s"batchBytes must be at least 1 and maxMessageBytes above $HeaderBytes; got " +
      s"batchBytes=$batchBytes, maxMessageBytes=$maxMessageBytes"
  )

  private val isPlain = compressor.codec == Codec.Uncompressed
  private val recordsMax = math.min(batchBytes, maxMessageBytes - HeaderBytes)
  // max.message.bytes limits the size as stored, so a compressed batch may be larger in memory.
  private val recordMax =
    if (isPlain) maxMessageBytes - HeaderBytes else Arrays.SizeMax - HeaderBytes

  private var area = nothing // room for a header, then the records
  private var end = HeaderBytes // behind the last of them
  private var records = 0
  private var baseTimestamp = 0L
  private var lowest = Long.MaxValue
  private var highest = Long.MinValue

  /** The number of records in the open batch. */
  def count: Int = records

  /** The size of the open batch before compression, with its header; 0 without records. */
  def sizeBytes: Int = if (records == 0) 0 else end

  /** The size of the allocated memory, without the compressor's. */
  def heldBytes: Long = area.length

  /**
   * The lowest timestamp (ms) of the open batch, or of the last closed batch until the next append.
   * `maxTimestamp` is the highest.
   */
  def minTimestamp: Long = lowest
  def maxTimestamp: Long = highest

  /**
   * Append a record. Return false if the batch is full, which is never the case for an empty batch:
   * the caller closes the batch and appends the record again.
   *
   * Key and value are given as for Spark's Platform: base object, offset and number of bytes (-1:
   * null). The headers are `headers[0, headersBytes)` in the format of a record, with their count
   * (HeadersBuffer); 0 bytes: no headers. Throws RecordTooLarge if no batch of maxMessageBytes can
   * contain the record; for a compressed batch only `close` finds this.
   */
  def append(
      timestampMs: Long, keyBase: AnyRef, keyOffset: Long, keyBytes: Int, valueBase: AnyRef,
      valueOffset: Long, valueBytes: Int, headers: Array[Byte], headersBytes: Int): Boolean = {
    val delta = if (records == 0) 0L else timestampMs - baseTimestamp
    val body = 1L + Varint.size(delta) + Varint.size(records) + fieldBytes(keyBytes) +
      fieldBytes(valueBytes) + math.max(headersBytes, 1)
    if (!begin(timestampMs, delta, body)) false
    else {
      var at = putField(area, end, keyBase, keyOffset, keyBytes)
      at = putField(area, at, valueBase, valueOffset, valueBytes)
      if (headersBytes > 0) System.arraycopy(headers, 0, area, at, headersBytes)
      else area(at) = 0
      end = at + math.max(headersBytes, 1)
      true
    }
  }

  /**
   * Write the start of a record whose body has `body` bytes. Return false if the record does not
   * fit.
   */
  private def begin(timestampMs: Long, delta: Long, body: Long): Boolean = {
    val size = Varint.size(body) + body
    if (records > 0 && end - HeaderBytes + size > recordsMax) false
    else {
      if (size > recordMax) throw new RecordTooLarge(0, size + HeaderBytes, maxMessageBytes)
      if (records == 0) reset(timestampMs, size.toInt)
      if (end + size > area.length) grow(end + size.toInt)
      var at = Varint.put(area, end, body.toInt)
      area(at) = 0 // attributes
      at = Varint.put(area, at + 1, delta)
      end = Varint.put(area, at, records)
      if (timestampMs < lowest) lowest = timestampMs
      if (timestampMs > highest) highest = timestampMs
      records += 1
      true
    }
  }

  private def reset(timestampMs: Long, size: Int): Unit = {
    end = HeaderBytes
    baseTimestamp = timestampMs
    lowest = timestampMs
    highest = timestampMs
    // Memory for a large record is not kept for later smaller ones.
    val usual = HeaderBytes + recordsMax
    if (area.length > usual && HeaderBytes + size <= usual) area = nothing
  }

  /** Double the size of the buffer, but not above a full batch unless a single record is larger. */
  private def grow(needed: Int): Unit = {
    val doubled = Arrays.grown(math.max(area.length, FirstBytes / 2), needed)
    val usual = math.max(HeaderBytes + recordsMax, needed)
    area = java.util.Arrays.copyOf(area, math.min(doubled, usual))
  }

  /**
   * Close the batch, with `baseOffset` as the offset of the first record. The batch is complete:
   * its CRC is set, the leader epoch is 0, and there is no producer. If the compressed batch is
   * larger than maxMessageBytes, the result is several batches. Throws RecordTooLarge if such a
   * batch has a single record; the batch is then lost.
   *
   * Returns the bytes from position to limit. They are valid until the next append here or the next
   * close of a builder with the same compressor.
   */
  def close(baseOffset: Long): ByteBuffer = {
    require(records > 0, "a batch without records can't be closed")
    val count = records
    records = 0
    if (isPlain) {
      putHeader(area, end, baseOffset, count)
      ByteBuffer.wrap(area, 0, end)
    } else {
      val stop = compressor.compress(area, HeaderBytes, end - HeaderBytes, HeaderBytes)
      if (stop <= maxMessageBytes) {
        putHeader(compressor.output, stop, baseOffset, count)
        ByteBuffer.wrap(compressor.output, 0, stop)
      } else if (count == 1) throw new RecordTooLarge(0, stop, maxMessageBytes)
      else split(baseOffset)
    }
  }

  private def putHeader(out: Array[Byte], stop: Int, baseOffset: Long, count: Int): Unit = {
    import BatchHeader._
    putLong(out, 0, baseOffset)
    putInt(out, LengthAt, stop - LogOverhead)
    putInt(out, LeaderEpochAt, 0) // the append sets it
    out(MagicAt) = Magic.toByte
    putShort(out, AttributesAt, compressor.codec.id)
    putInt(out, LastOffsetDeltaAt, count - 1)
    putLong(out, BaseTimestampAt, baseTimestamp)
    putLong(out, MaxTimestampAt, highest)
    putLong(out, ProducerIdAt, NoProducer)
    putShort(out, ProducerEpochAt, NoProducer)
    putInt(out, BaseSequenceAt, baseSequence)
    putInt(out, CountAt, count)
    putInt(out, CrcAt, Crc32c.of(out, AttributesAt, stop - AttributesAt))
  }

  /**
   * Write the records in batches of half the size, recursively, because the compressed batch was
   * too large.
   */
  private def split(baseOffset: Long): ByteBuffer = {
    val half = new BatchBuilder(compressor, (end - HeaderBytes) / 2, maxMessageBytes)
    val parts = new Parts(end)
    var done = 0
    var at = HeaderBytes
    while (at < end) {
      val bodyBytes = Varint.sizeAt(area, at, end, Varint.IntBytesMax)
      val from = at + bodyBytes
      val stop = from + Varint.get(area, at, bodyBytes).toInt
      val deltaBytes = Varint.sizeAt(area, from + 1, stop, Varint.LongBytesMax)
      val timestamp = baseTimestamp + Varint.get(area, from + 1, deltaBytes)
      val indexAt = from + 1 + deltaBytes
      val rest = indexAt + Varint.sizeAt(area, indexAt, stop, Varint.IntBytesMax)
      if (!half.appendRest(timestamp, area, rest, stop)) {
        done += half.closeInto(parts, baseOffset, done)
        half.appendRest(timestamp, area, rest, stop)
      }
      at = stop
    }
    half.closeInto(parts, baseOffset, done)
    parts.buffer
  }

  /**
   * Append a record that another builder framed: its bytes behind the timestamp and offset deltas
   * are [from, stop).
   */
  private def appendRest(timestampMs: Long, bytes: Array[Byte], from: Int, stop: Int): Boolean = {
    val delta = if (records == 0) 0L else timestampMs - baseTimestamp
    val body = 1L + Varint.size(delta) + Varint.size(records) + (stop - from)
    val fits = begin(timestampMs, delta, body)
    if (fits) {
      System.arraycopy(bytes, from, area, end, stop - from)
      end += stop - from
    }
    fits
  }

  /**
   * Close the open batch, which begins with record `done`, and add it to `parts`. Return its number
   * of records.
   */
  private def closeInto(parts: Parts, baseOffset: Long, done: Int): Int = {
    val count = records
    try parts.add(close(baseOffset + done))
    catch {
      case e: RecordTooLarge =>
        throw new RecordTooLarge(done + e.index, e.sizeBytes, maxMessageBytes)
    }
    count
  }

  /** Release the memory, and drop the records since the last close. */
  def release(): Unit = {
    area = nothing
    end = HeaderBytes
    records = 0
  }
}

private object BatchBuilder {
  private val nothing = new Array[Byte](0)
  private val FirstBytes = 512
  private val NoProducer = -1

  /** Return the size of a key or value with its length prefix; null has only the prefix. */
  private def fieldBytes(bytes: Int): Long = Varint.size(bytes).toLong + math.max(bytes, 0)

  private def putField(
      out: Array[Byte], at: Int, base: AnyRef, offset: Long, bytes: Int): Int = {
    val to = Varint.put(out, at, bytes)
    if (bytes > 0) {
      base match {
        case array: Array[Byte] =>
          System.arraycopy(array, (offset - Platform.BYTE_ARRAY_OFFSET).toInt, out, to, bytes)
        case _ => Platform.copyMemory(base, offset, out, Platform.BYTE_ARRAY_OFFSET + to, bytes)
      }
      to + bytes
    } else to
  }

  /** Concatenated batches. */
  private final class Parts(sizeBytes: Int) {
    private var bytes = new Array[Byte](sizeBytes)
    private var end = 0

    def add(batch: ByteBuffer): Unit = {
      val size = batch.remaining
      if (end + size.toLong > bytes.length) {
        bytes = java.util.Arrays.copyOf(bytes, Arrays.grown(bytes.length, end + size.toLong))
      }
      batch.get(bytes, end, size)
      end += size
    }

    def buffer: ByteBuffer = ByteBuffer.wrap(bytes, 0, end)
  }
}
