package sparklog.format

import java.util.Arrays

/** A growing array for decompressed bytes, reused for all batches. */
private[format] final class PlainBytes(maxBytes: Int) {
  var array: Array[Byte] = Array.emptyByteArray
  /** The number of filled bytes. */
  var used: Int = 0

  /** The number of bytes that can be added without growing. */
  def room: Int = array.length - used

  /**
   * Make space for `more` bytes; a growing array at least doubles. The caller passes a size that a
   * stream only declares only if its bytes can produce that size. Throws TooLarge above `maxBytes`.
   */
  def reserve(more: Long): Unit = if (more > room) {
    val wanted = used + more
    if (wanted > maxBytes) throw new TooLarge(maxBytes)
    val grown = math.max(wanted, math.max(2L * array.length, PlainBytes.BytesMin))
    array = Arrays.copyOf(array, math.min(grown, maxBytes).toInt)
  }

  /** Double the array at least. Throws TooLarge at the maximum size. */
  def grow(): Unit = reserve(room + 1L)

  /** The maximum number of further bytes. */
  def maxRoom: Int = maxBytes - used

  def release(): Unit = {
    array = Array.emptyByteArray
    used = 0
  }
}

private object PlainBytes {
  final val BytesMin = 1L << 16
}
