package sparklog.format

import java.util.zip.{CRC32, Deflater}

import com.github.luben.zstd.{Zstd, ZstdCompressCtx}
import net.jpountz.lz4.{LZ4Compressor, LZ4Factory}
import org.xerial.snappy.Snappy

/**
 * Compresses the records of batches with a codec and level, in the framing that Kafka writes
 * (sparklog/format/compression.py). A thread uses one object for all its batches; the next call
 * overwrites `output`. Not thread-safe.
 */
abstract class Compressor private[format] (val codec: Codec) {
  private var made = Compressor.nothing

  /** The bytes that `compress` wrote. */
  final def output: Array[Byte] = made

  /** Bytes of allocated memory on the heap. */
  final def heldBytes: Long = made.length

  /**
   * Compress `in[at, at + size)` into `output` from `to` on. Return the end position in `output`.
   */
  def compress(in: Array[Byte], at: Int, size: Int, to: Int): Int

  /** Release memory, also native memory. The object can be used again. */
  def close(): Unit = made = Compressor.nothing

  /** Return an output buffer of at least `size` bytes; its first `keep` bytes are preserved. */
  protected final def room(size: Long, keep: Int = 0): Array[Byte] = {
    val isTooLarge = made.length > Compressor.KeptBytes && size <= Compressor.KeptBytes
    if (size > made.length || isTooLarge) {
      val larger = new Array[Byte](Arrays.grown(0, size))
      System.arraycopy(made, 0, larger, 0, keep)
      made = larger
    }
    made
  }
}

object Compressor {
  private val nothing = new Array[Byte](0)

  /**
   * An output buffer above this size, for a large record, is not kept for later smaller batches.
   */
  private val KeptBytes = 8 << 20

  /**
   * Return a compressor. `level` None is Kafka's default level (gzip -1, lz4 9, zstd 3); snappy and
   * none have no levels. Throws an IllegalArgumentException if the codec has no such level. Source:
   * CompressionType.java.
   */
  def apply(codec: Codec, level: Option[Int]): Compressor = codec match {
    case Codec.Uncompressed => new AsIs
    case Codec.Gzip =>
      new GzipCompressor(checked(codec, level.getOrElse(-1), -1, 9, without = 0))
    case Codec.Snappy => new SnappyCompressor
    case Codec.Lz4 => new Lz4Compressor(checked(codec, level.getOrElse(9), 1, 17))
    case Codec.Zstd => new ZstdCompressor(checked(codec, level.getOrElse(3), -131072, 22))
  }

  private def checked(
      codec: Codec, level: Int, low: Int, high: Int, without: Int = Int.MinValue): Int = {
    require(level >= low && level <= high && level != without,
      s"the level of $codec must be from $low to $high; got $level")
    level
  }
}

/** No compression. BatchBuilder does not use it, but stores the records in place. */
private final class AsIs extends Compressor(Codec.Uncompressed) {
  override def compress(in: Array[Byte], at: Int, size: Int, to: Int): Int = {
    System.arraycopy(in, at, room(to.toLong + size), to, size)
    to + size
  }
}

/** Writes a gzip stream of one member, without a name and with mtime 0. */
private final class GzipCompressor(level: Int) extends Compressor(Codec.Gzip) {
  import GzipCompressor._

  private var deflater: Deflater = _
  private val crc = new CRC32

  override def compress(in: Array[Byte], at: Int, size: Int, to: Int): Int = {
    if (deflater == null) deflater = new Deflater(level, true) else deflater.reset()
    var out = room(to + bound(size))
    System.arraycopy(head, 0, out, to, head.length)
    var end = to + head.length
    deflater.setInput(in, at, size)
    deflater.finish()
    while (!deflater.finished) {
      if (end == out.length) out = room(2L * out.length, keep = end)
      end += deflater.deflate(out, end, out.length - end)
    }
    out = room(end.toLong + TailBytes, keep = end)
    crc.reset()
    crc.update(in, at, size)
    LittleEndian.putInt(out, end, crc.getValue.toInt)
    LittleEndian.putInt(out, end + 4, size)
    end + TailBytes
  }

  override def close(): Unit = {
    super.close()
    if (deflater != null) deflater.end()
    deflater = null
  }
}

private object GzipCompressor {
  /** Magic, deflate, no flags, no time, no effort, unknown system. */
  val head: Array[Byte] = Array(0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff).map(_.toByte)
  val TailBytes = 8

  /**
   * Return the maximum output of zlib for `size` bytes, computed as by deflateBound. If the result
   * is too small, the output grows.
   */
  def bound(size: Int): Long =
    size.toLong + (size >> 12) + (size >> 14) + (size >> 25) + 13 + head.length + TailBytes
}

/**
 * Writes the stream of xerial: a header, then for every 32 KiB the compressed size (i32) and a raw
 * snappy block.
 */
private final class SnappyCompressor extends Compressor(Codec.Snappy) {
  import SnappyCompressor._

  override def compress(in: Array[Byte], at: Int, size: Int, to: Int): Int = {
    val blocks = size / BlockBytes + 1
    val out = room(to.toLong + head.length + blocks * (4L + blockBound))
    System.arraycopy(head, 0, out, to, head.length)
    var end = to + head.length
    var from = at
    val stop = at + size
    while (from < stop) {
      val some = math.min(BlockBytes, stop - from)
      val packed = Snappy.compress(in, from, some, out, end + 4)
      BatchHeader.putInt(out, end, packed)
      end += 4 + packed
      from += some
    }
    end
  }
}

private object SnappyCompressor {
  val BlockBytes: Int = 32 << 10
  lazy val blockBound: Int = Snappy.maxCompressedLength(BlockBytes)
  val head: Array[Byte] = Array[Byte](-126) ++ "SNAPPY".getBytes("US-ASCII") ++
    Array[Byte](0, 0, 0, 0, 1, 0, 0, 0, 1)
}

/** Writes one frame of independent 64 KiB blocks, without sizes and checksums. */
private final class Lz4Compressor(level: Int) extends Compressor(Codec.Lz4) {
  import Lz4Compressor._

  // As in Kafka: the default level is the fast compressor, all others are high compression.
  private val block: LZ4Compressor = {
    val factory = LZ4Factory.fastestInstance
    if (level == FastLevel) factory.fastCompressor else factory.highCompressor(level)
  }
  private val blockBound = block.maxCompressedLength(BlockBytes)

  override def compress(in: Array[Byte], at: Int, size: Int, to: Int): Int = {
    val blocks = size / BlockBytes
    val out = room(to.toLong + head.length + 4 + blocks * (4L + BlockBytes) + 4 + blockBound)
    System.arraycopy(head, 0, out, to, head.length)
    var end = to + head.length
    var from = at
    val stop = at + size
    while (from < stop) {
      val some = math.min(BlockBytes, stop - from)
      val packed = block.compress(in, from, some, out, end + 4, blockBound)
      if (packed < some) {
        LittleEndian.putInt(out, end, packed)
        end += 4 + packed
      } else {
        LittleEndian.putInt(out, end, some | Stored)
        System.arraycopy(in, from, out, end + 4, some)
        end += 4 + some
      }
      from += some
    }
    LittleEndian.putInt(out, end, 0)
    end + 4
  }
}

private object Lz4Compressor {
  val FastLevel = 9
  val BlockBytes: Int = 64 << 10
  /** The top bit of a block's size, which marks an uncompressed block. */
  val Stored: Int = 1 << 31
  /** Magic; version 1, independent blocks; 64 KiB; the checksum of the two bytes before. */
  val head: Array[Byte] = Array(0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82).map(_.toByte)
}

/**
 * Writes one frame without size and checksum. The context takes 100 KiB to several MB of native
 * memory.
 */
private final class ZstdCompressor(level: Int) extends Compressor(Codec.Zstd) {
  private var context: ZstdCompressCtx = _

  override def compress(in: Array[Byte], at: Int, size: Int, to: Int): Int = {
    if (context == null) {
      context = new ZstdCompressCtx().setLevel(level).setContentSize(false).setChecksum(false)
    }
    val out = room(to + Zstd.compressBound(size))
    to + context.compressByteArray(out, to, out.length - to, in, at, size)
  }

  override def close(): Unit = {
    super.close()
    if (context != null) context.close()
    context = null
  }
}
