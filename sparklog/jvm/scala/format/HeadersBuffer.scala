package sparklog.format

import org.apache.spark.unsafe.Platform

/**
 * The headers of one record, as its end has them: varint count, then of each the varint length of
 * the key, the key (UTF-8), the varint length of the value, the value. One object serves all
 * records, one after the other: `start`, `add` each, then `bytes` up to `sizeBytes`.
 */
final class HeadersBuffer {
  private var buffer = new Array[Byte](HeadersBuffer.FirstBytes)
  private var end = 0

  /** Where they are, from 0 to before `sizeBytes`, until the next `start`. */
  def bytes: Array[Byte] = buffer
  def sizeBytes: Int = end
  /** Memory that it keeps. */
  def heldBytes: Long = buffer.length

  /** Begin those of another record, of which there will be `count`. */
  def start(count: Int): Unit = {
    if (buffer.length > HeadersBuffer.KeptBytes) buffer = new Array[Byte](HeadersBuffer.FirstBytes)
    end = Varint.put(buffer, 0, count)
  }

  /** Add a header, from where Spark's Platform has its key and value (-1 bytes: null). */
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
  /** A larger buffer isn't kept for the next record. */
  val KeptBytes: Int = 1 << 20
}
