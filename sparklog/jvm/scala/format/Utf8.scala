package sparklog.format

/**
 * Makes header keys valid UTF-8, as Spark's strings require. Each maximal part of an invalid
 * sequence becomes U+FFFD, as with `errors="replace"` in Python. Java's decoder can't be used: it
 * replaces the three bytes of a surrogate by one U+FFFD, Python by three. Source: The Unicode
 * Standard 16.0, section 3.9.6, table 3-7.
 */
object Utf8 {
  private val Replacement = Array[Byte](0xef.toByte, 0xbf.toByte, 0xbd.toByte)

  def isWellFormed(bytes: Array[Byte], at: Int, count: Int): Boolean = {
    val stop = at + count
    var from = at
    while (from < stop && bytes(from) >= 0) from += 1
    var size = 1
    while (from < stop && size > 0) {
      size = sizeAt(bytes, from, stop)
      from += size
    }
    size > 0
  }

  /** Return a copy in which invalid sequences are replaced. */
  def mended(bytes: Array[Byte], at: Int, count: Int): Array[Byte] = {
    val out = new Array[Byte](count * Replacement.length)
    val stop = at + count
    var from = at
    var to = 0
    while (from < stop) {
      val size = sizeAt(bytes, from, stop)
      if (size > 0) System.arraycopy(bytes, from, out, to, size)
      else System.arraycopy(Replacement, 0, out, to, Replacement.length)
      to += (if (size > 0) size else Replacement.length)
      from += math.abs(size)
    }
    java.util.Arrays.copyOf(out, to)
  }

  /**
   * Return the number of bytes of the character at `at`; for an invalid character, the negative
   * number of bytes to replace.
   */
  private def sizeAt(bytes: Array[Byte], at: Int, stop: Int): Int = {
    val lead = bytes(at) & 0xff
    val size =
      if (lead < 0x80) 1
      else if (lead < 0xc2) 0
      else if (lead < 0xe0) 2
      else if (lead < 0xf0) 3
      else if (lead < 0xf5) 4
      else 0
    // The second byte reveals overlong forms, surrogates and code points above U+10FFFF.
    val low = if (lead == 0xe0) 0xa0 else if (lead == 0xf0) 0x90 else 0x80
    val high = if (lead == 0xed) 0x9f else if (lead == 0xf4) 0x8f else 0xbf
    var n = 1
    while (n < size && at + n < stop && isWithin(bytes(at + n) & 0xff, n, low, high)) n += 1
    if (n == size) size else -n
  }

  private def isWithin(byte: Int, place: Int, low: Int, high: Int): Boolean =
    if (place == 1) byte >= low && byte <= high else byte >= 0x80 && byte <= 0xbf
}
