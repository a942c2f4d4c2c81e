package sparklog.format

/**
 * Reads and writes the little-endian numbers of gzip, lz4 and zstd. Kafka's own numbers are
 * big-endian (BatchHeader).
 */
private[format] object LittleEndian {
  /** Return the number in up to four bytes; negative if the top bit of the fourth byte is set. */
  def get(bytes: Array[Byte], at: Int, count: Int): Int = {
    var number = 0
    var n = count
    while (n > 0) {
      n -= 1
      number = (number << 8) | (bytes(at + n) & 0xff)
    }
    number
  }

  /** Return the number in eight bytes. */
  def getLong(bytes: Array[Byte], at: Int): Long =
    (get(bytes, at, 4) & 0xffffffffL) | get(bytes, at + 4, 4).toLong << 32

  def putInt(bytes: Array[Byte], at: Int, value: Int): Unit =
    BatchHeader.putInt(bytes, at, Integer.reverseBytes(value))
}
