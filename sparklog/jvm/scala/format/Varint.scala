package sparklog.format

/**
 * Zig-zag LEB128 numbers: 7 bits a byte, the lowest first, the top bit set in all but the last.
 * Source: ByteUtils.java (Kafka 1eb7644).
 */
object Varint {
  /** Most bytes of an i32, and of an i64. */
  val IntBytesMax = 5
  val LongBytesMax = 10

  /** Bytes that `value` takes. */
  def size(value: Int): Int = (38 - Integer.numberOfLeadingZeros(zigzag(value) | 1)) / 7

  def size(value: Long): Int = (70 - java.lang.Long.numberOfLeadingZeros(zigzag(value) | 1)) / 7

  /** Write `value` at `at`; the position behind it. */
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

  /** Bytes of the number at `at`; 0 if it doesn't end before `stop`, or has more than `most`. */
  def sizeAt(bytes: Array[Byte], at: Int, stop: Int, most: Int): Int = {
    val last = math.min(stop - at, most)
    var size = 0
    while (size < last && bytes(at + size) < 0) size += 1
    if (size < last) size + 1 else 0
  }

  /** The number in the `size` bytes at `at`; of ten bytes the bits over 64 are dropped. */
  def get(bytes: Array[Byte], at: Int, size: Int): Long = {
    var bits = 0L
    var from = at + size
    while (from > at) {
      from -= 1
      bits = (bits << 7) | (bytes(from) & 0x7f)
    }
    (bits >>> 1) ^ -(bits & 1)
  }

  /** What `read` gives for a number that is cut or too long. */
  val Cut = 0L

  /**
   * The number at `at`, of up to five bytes and before `stop`, together with how many it has:
   * `valueOf` and `sizeOf` take them apart. `Cut` has the size 0.
   */
  def read(bytes: Array[Byte], at: Int, stop: Int): Long =
    if (at < stop && bytes(at) >= 0) {
      val bits = bytes(at)
      (((bits >>> 1) ^ -(bits & 1)) << SizeBits).toLong | 1
    } else readMore(bytes, at, stop)

  private def readMore(bytes: Array[Byte], at: Int, stop: Int): Long = {
    val size = sizeAt(bytes, at, stop, IntBytesMax)
    (get(bytes, at, size) << SizeBits) | size
  }

  def valueOf(read: Long): Long = read >> SizeBits
  def sizeOf(read: Long): Int = (read & SizeMask).toInt

  private val SizeBits = 4
  private val SizeMask = (1 << SizeBits) - 1

  private def zigzag(value: Int): Int = (value << 1) ^ (value >> 31)
  private def zigzag(value: Long): Long = (value << 1) ^ (value >> 63)
}
