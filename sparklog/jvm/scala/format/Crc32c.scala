package sparklog.format

import java.util.zip.CRC32C

/** Computes the CRC-32C (Castagnoli) of bytes; an intrinsic of the JVM. */
object Crc32c {
  def of(bytes: Array[Byte], at: Int, count: Int): Int = {
    val crc = new CRC32C
    crc.update(bytes, at, count)
    crc.getValue.toInt
  }
}
