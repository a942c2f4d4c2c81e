package sparklog.format

import net.jpountz.lz4.{LZ4Exception, LZ4Factory}
import net.jpountz.xxhash.XXHashFactory

/**
 * Decompresses the first lz4 frame and ignores bytes behind it, like other readers. Checksums and
 * sizes are checked. `Lz4LinkedBlock` reads blocks that refer to earlier blocks (the default of
 * lz4, which Kafka never writes).
 *
 *   i32 magic; flags; block size; [i64 content size]; [i32 dictionary]; checksum of these;
 *   (i32 size, block, [checksum])*; i32 0; [checksum of the content]       little-endian
 *
 * Source: lz4_Frame_format.md, LZ4F_decompress of lz4 1.9.4.
 */
private[format] final class Lz4Reader {
  import Lz4Reader._

  private val decompressor = LZ4Factory.fastestInstance.safeDecompressor
  private val hash = XXHashFactory.fastestInstance.hash32

  private var flags = 0
  private var blockBytesMax = 0
  private var contentBytes = 0L // 0: not declared

  def read(bytes: Array[Byte], start: Int, count: Int, out: PlainBytes): Unit = {
    val stop = start + count
    var at = header(bytes, start, stop)
    var more = true
    while (more) {
      if (stop - at < 4) cut()
      val word = LittleEndian.get(bytes, at, 4)
      at += 4
      if (word == 0) more = false
      else at = block(bytes, at, stop, word, out)
    }
    if (contentBytes != 0 && contentBytes != out.used) {
      throw new DamagedData(s"the frame declares $contentBytes bytes, but contains ${out.used}")
    }
    if ((flags & HasContentChecksum) != 0) {
      if (stop - at < 4) cut()
      check(LittleEndian.get(bytes, at, 4), out.array, 0, out.used)
    }
  }

  /** Read the header of the frame. Return the position behind it. */
  private def header(bytes: Array[Byte], start: Int, stop: Int): Int = {
    if (stop - start < HeaderBytesMin) cut()
    if (LittleEndian.get(bytes, start, 4) != Magic)
      throw new DamagedData("the data are not an lz4 frame")
    flags = bytes(start + 4) & 0xff
    val sizes = bytes(start + 5) & 0xff
    if ((flags & Reserved) != 0 || (sizes & SizesReserved) != 0) {
      throw new DamagedData("a reserved flag is set")
    }
    if (flags >> 6 != Version)
      throw new DamagedData(s"the version of the frame is ${flags >> 6}, but only 1 is supported")
    if (sizes >> 4 < SizeMin) throw new DamagedData("the block size of the frame is unknown")
    blockBytesMax = 1 << (8 + 2 * (sizes >> 4))
    contentBytes = 0
    var at = start + 6
    if ((flags & HasContentSize) != 0) at += 8
    if ((flags & HasDictionary) != 0) at += 4
    if (at >= stop) cut()
    if ((flags & HasContentSize) != 0) {
      contentBytes = LittleEndian.getLong(bytes, start + 6)
    }
    val expected = hash.hash(bytes, start + 4, at - start - 4, 0) >>> 8
    if (bytes(at) != expected.toByte)
      throw new DamagedData("the checksum of the header does not match")
    at + 1
  }

  /** Read the block at `start`, whose size is in `word`. Return the position behind it. */
  private def block(
      bytes: Array[Byte], start: Int, stop: Int, word: Int, out: PlainBytes): Int = {
    val size = word & Int.MaxValue
    if (size > blockBytesMax) throw new DamagedData(s"a block of $size bytes is too large")
    if (size > stop - start) cut()
    var end = start + size
    if ((flags & HasBlockChecksums) != 0) {
      if (stop - end < 4) cut()
      check(LittleEndian.get(bytes, end, 4), bytes, start, size)
      end += 4
    }
    if (word < 0) {
      out.reserve(size)
      System.arraycopy(bytes, start, out.array, out.used, size)
      out.used += size
    } else {
      // A byte expands to at most 255 bytes, and lz4 looks only a few bytes ahead.
      val most = math.min(blockBytesMax.toLong, RatioMax * size + Ahead).toInt
      out.reserve(most)
      out.used += (
        if ((flags & Independent) != 0) independent(bytes, start, size, out, most)
        else Lz4LinkedBlock.decompress(bytes, start, size, out.array, out.used, most))
    }
    end
  }

  private def independent(
      bytes: Array[Byte], at: Int, size: Int, out: PlainBytes, room: Int): Int =
    try decompressor.decompress(bytes, at, size, out.array, out.used, room)
    catch { case e: LZ4Exception => throw new DamagedData(String.valueOf(e.getMessage)) }

  private def check(wanted: Int, bytes: Array[Byte], at: Int, count: Int): Unit =
    if (hash.hash(bytes, at, count, 0) != wanted) throw new DamagedData("a checksum does not match")

  private def cut(): Nothing = throw new DamagedData("the stream is truncated")
}

private object Lz4Reader {
  private final val Magic = 0x184d2204
  private final val HeaderBytesMin = 7
  private final val Version = 1

  private final val Independent = 0x20
  private final val HasBlockChecksums = 0x10
  private final val HasContentSize = 0x08
  private final val HasContentChecksum = 0x04
  private final val Reserved = 0x02
  private final val HasDictionary = 0x01
  private final val SizesReserved = 0x8f
  private final val SizeMin = 4 // 64 KiB

  private final val RatioMax = 255L
  private final val Ahead = 64
}
