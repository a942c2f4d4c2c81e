package sparklog.format

import java.nio.ByteOrder

import org.apache.spark.unsafe.Platform

/** Computes Kafka's hash of keys. Source: Utils.murmur2, BuiltInPartitioner (Kafka 1eb7644). */
object Murmur2 {
  private val Seed = 0x9747b28c
  private val M = 0x5bd1e995
  private val isLittle = ByteOrder.nativeOrder == ByteOrder.LITTLE_ENDIAN

  /** Return the partition of a non-null key: toPositive(murmur2(key)) % partitions. */
  def partition(base: AnyRef, offset: Long, bytes: Int, partitions: Int): Int =
    (hash(base, offset, bytes) & 0x7fffffff) % partitions

  /**
   * Return the hash of `bytes` bytes, which are given as for Spark's Platform: base object and
   * offset.
   */
  def hash(base: AnyRef, offset: Long, bytes: Int): Int = {
    val whole = offset + (bytes & ~3)
    var h = Seed ^ bytes
    var at = offset
    while (at < whole) {
      val word = Platform.getInt(base, at)
      var k = (if (isLittle) word else Integer.reverseBytes(word)) * M
      k ^= k >>> 24
      h = (h * M) ^ (k * M)
      at += 4
    }
    val left = bytes & 3
    if (left == 3) h ^= (Platform.getByte(base, at + 2) & 0xff) << 16
    if (left >= 2) h ^= (Platform.getByte(base, at + 1) & 0xff) << 8
    if (left >= 1) h = (h ^ (Platform.getByte(base, at) & 0xff)) * M
    h ^= h >>> 13
    h *= M
    h ^ (h >>> 15)
  }
}
