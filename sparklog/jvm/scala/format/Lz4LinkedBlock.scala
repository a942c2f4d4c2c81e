package sparklog.format

/**
 * Decompresses an lz4 block whose matches may refer to the 64 KiB of earlier blocks. The Java
 * bindings of lz4 have no function for such blocks. Rejects the same blocks as
 * LZ4_decompress_safe_usingDict, and also matches at distance 0. Source: lz4_Block_format.md, lz4.c
 * of lz4 1.9.4.
 */
private[format] object Lz4LinkedBlock {
  private final val MatchMin = 4
  private final val LastLiterals = 5
  private final val MatchFindLimit = 12
  private final val More = 15 // a length that continues in the next bytes

  /**
   * Decompress `size` bytes at `start` into `out` from `to` on, at most `room` bytes. Return the
   * number of output bytes. Matches may refer to anything in `out` before `to`. Throws DamagedData
   * for an invalid block.
   */
  def decompress(
      bytes: Array[Byte], start: Int, size: Int, out: Array[Byte], to: Int, room: Int): Int = {
    val stop = start + size
    val end = to + room
    var at = start
    var made = to
    var more = true
    while (more) {
      if (at >= stop) damaged()
      val token = bytes(at) & 0xff
      at += 1
      var literals = token >> 4
      if (literals == More) {
        // The bytes of the length must end early enough for 15 literals to follow.
        var byte = 255
        while (byte == 255) {
          if (at >= stop - More) damaged()
          byte = bytes(at) & 0xff
          literals += byte
          at += 1
          if (literals > room) damaged()
        }
      }
      val isLast = made + literals > end - MatchFindLimit ||
        at + literals > stop - (2 + 1 + LastLiterals)
      if (isLast && (at + literals != stop || made + literals > end)) damaged()
      System.arraycopy(bytes, at, out, made, literals)
      at += literals
      made += literals
      if (isLast) more = false
      else {
        val distance = (bytes(at) & 0xff) | (bytes(at + 1) & 0xff) << 8
        at += 2
        var length = token & More
        if (length == More) {
          var byte = 255
          while (byte == 255) {
            byte = bytes(at) & 0xff
            length += byte
            at += 1
            if (at > stop - LastLiterals + 1 || length > room) damaged()
          }
        }
        length += MatchMin
        if (distance == 0 || distance > made || made + length > end - LastLiterals) damaged()
        copyMatch(out, made, distance, length)
        made += length
      }
    }
    made - to
  }

  /** Copy `length` bytes from `distance` before `to`; if `distance` is smaller, they repeat. */
  private def copyMatch(out: Array[Byte], to: Int, distance: Int, length: Int): Unit =
    if (distance >= length) System.arraycopy(out, to - distance, out, to, length)
    else {
      var n = 0
      while (n < length) {
        out(to + n) = out(to - distance + n)
        n += 1
      }
    }

  private def damaged(): Nothing = throw new DamagedData("a block is damaged")
}
