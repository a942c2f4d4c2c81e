package sparklog.format

import java.util.Arrays

/** An array that decompressed bytes go to; it grows as they come and serves batch after batch. */
private[format] final class PlainBytes(maxBytes: Int) {
  var array: Array[Byte] = Array.emptyByteArray
  /** How many of its bytes are filled, from the first on. */
  var used: Int = 0

  /** How many more it can take as it is. */
  def room: Int = array.length - used

  /**
   * Make room for `more` bytes, at least doubling it. What a stream only claims to hold isn't asked
   * for unless its bytes can make it. TooLarge if there would be more than `maxBytes`.
   */
  def reserve(more: Long): Unit = if (more > room) {
    val wanted = used + more
    if (wanted > maxBytes) throw new TooLarge(maxBytes)
    val grown = math.max(wanted, math.max(2L * array.length, PlainBytes.BytesMin))
    array = Arrays.copyOf(array, math.min(grown, maxBytes).toInt)
  }

  /** At least the double; TooLarge if it is as large as it may be. */
  def grow(): Unit = reserve(room + 1L)

  /** How many more it may ever take. */
  def maxRoom: Int = maxBytes - used

  def release(): Unit = {
    array = Array.emptyByteArray
    used = 0
  }
}

private object PlainBytes {
  final val BytesMin = 1L << 16
}
