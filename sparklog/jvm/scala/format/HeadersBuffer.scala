package sparklog.format

import org.apache.spark.unsafe.Platform

/**
 * Writes the headers of a record in the format of a record: the count as varint, then for each
 * header the length of the key as varint, the key (UTF-8), the length of the value as varint, and
 * the value. The object is reused for all records: call `start`, then `add` for each header, then
 * use `bytes` up to `sizeBytes`.
 */
final class HeadersBuffer {
  private var buffer = new Array[Byte](HeadersBuffer.FirstBytes)
  private var end = 0

  /** The headers, from 0 to `sizeBytes`. They are valid until the next `start`. */
  def bytes: Array[Byte] = buffer
  def sizeBytes: Int = end
  /** Bytes of allocated memory. */
  def heldBytes: Long = buffer.length

  /** Begin the headers of another record, which has `count` headers. */
  def start(count: Int): Unit = {
    if (buffer.length > HeadersBuffer.KeptBytes) buffer = new Array[Byte](HeadersBuffer.FirstBytes)
    end = Varint.put(buffer, 0, count)
  }

  /** Add a header. Key and value are given as for Spark's Platform (-1 bytes: null). */
  def add(
      keyBase: AnyRef, keyOffset: Long, keyBytes: Int,
      valueBase: AnyRef, valueOffset: Long, valueBytes: Int): Unit = {
    reserve(2L * Varint.IntBytesMax + keyBytes + math.max(valueBytes, 0))
    put(keyBase, keyOffset, keyBytes)
    put(valueBase, valueOffset, valueBytes)
  }

  private def put(base: AnyRef, offset: Long, bytes: Int): Unit = {
    end = Varint.put(buffer, end, bytes)
    if (bytes > 0) {
      Platform.copyMemory(base, offset, buffer, Platform.BYTE_ARRAY_OFFSET + end, bytes)
      end += bytes
    }
  }

  private def reserve(more: Long): Unit = if (end + more > buffer.length) {
    buffer = java.util.Arrays.copyOf(buffer, Arrays.grown(buffer.length, end + more))
  }
}

private object HeadersBuffer {
  val FirstBytes = 256
  /** A buffer above this size is not kept for the next record. */
  val KeptBytes: Int = 1 << 20
}
