package sparklog.format

/**
 * Reads and writes varints (zig-zag LEB128): 7 bits per byte, lowest bits first; the top bit is set
 * in all bytes but the last. Source: ByteUtils.java (Kafka 1eb7644).
 */
object Varint {
  /** The maximum number of bytes of an i32, and below it of an i64. */
  final val IntBytesMax = 5
  final val LongBytesMax = 10

  /**
   * Return the number of bytes of `value`: a seventh of its bits, rounded up. Multiplying by 9/64
   * is faster than dividing by 7.
   */
  def size(value: Int): Int = (352 - Integer.numberOfLeadingZeros(zigzag(value) | 1) * 9) >>> 6

  def size(value: Long): Int =
    (640 - java.lang.Long.numberOfLeadingZeros(zigzag(value) | 1) * 9) >>> 6

  /** Write `value` at `at`. Return the position behind it. */
  def put(bytes: Array[Byte], at: Int, value: Int): Int = {
    var left = zigzag(value)
    var to = at
    while ((left & ~0x7f) != 0) {
      bytes(to) = (left | 0x80).toByte
      left >>>= 7
      to += 1
    }
    bytes(to) = left.toByte
    to + 1
  }

  def put(bytes: Array[Byte], at: Int, value: Long): Int = {
    var left = zigzag(value)
    var to = at
    while ((left & ~0x7fL) != 0) {
      bytes(to) = (left | 0x80).toByte
      left >>>= 7
      to += 1
    }
    bytes(to) = left.toByte
    to + 1
  }

  // Branches instead of bit operations determine the size, so that the processor can continue
  // behind a number before its value is known: three times as fast in RecordCursor.

  /**
   * Return the number of bytes of the varint at `at`; 0 if it doesn't end before `stop`, or has
   * more than `most` bytes.
   */
  def sizeAt(bytes: Array[Byte], at: Int, stop: Int, most: Int): Int =
    if (at >= stop) 0
    else if (bytes(at) >= 0) 1
    else if (at + 1 < stop && bytes(at + 1) >= 0) 2
    else longSizeAt(bytes, at, math.min(stop - at, most))

  private def longSizeAt(bytes: Array[Byte], at: Int, most: Int): Int = {
    var size = 2
    while (size < most && bytes(at + size) < 0) size += 1
    if (size < most) size + 1 else 0
  }

  /** Return the number in the `size` bytes at `at`. Of ten bytes, the bits above 64 are dropped. */
  def get(bytes: Array[Byte], at: Int, size: Int): Long =
    if (size == 1) unzigzag(bytes(at))
    else if (size == 2) unzigzag((bytes(at) & 0x7f) | bytes(at + 1) << 7)
    else getLong(bytes, at, size)

  private def getLong(bytes: Array[Byte], at: Int, size: Int): Long = {
    var bits = 0L
    var from = at + size
    while (from > at) {
      from -= 1
      bits = (bits << 7) | (bytes(from) & 0x7f)
    }
    (bits >>> 1) ^ -(bits & 1)
  }

  private def unzigzag(bits: Int): Int = (bits >>> 1) ^ -(bits & 1)
  private def zigzag(value: Int): Int = (value << 1) ^ (value >> 31)
  private def zigzag(value: Long): Long = (value << 1) ^ (value >> 63)
}
