package sparklog.format

import com.github.luben.zstd.{Zstd, ZstdDecompressCtx, ZstdException}

/**
 * Zstandard, one frame or several. They are decompressed in one go, so that a window takes no
 * memory but that of the output; one over 128 MiB is refused nevertheless, as zstd's streams do,
 * which other readers use. Source: RFC 8878.
 */
private[format] final class ZstdReader {
  import ZstdReader._

  private val context = new ZstdDecompressCtx

  def read(bytes: Array[Byte], start: Int, count: Int, out: PlainBytes): Unit = try {
    val most = plainBytesMax(bytes, start, start + count)
    val some = math.max(RatioExpected * count, EarlyBytes)
    out.reserve(math.min(math.min(most, some), out.maxRoom))
    while (!fits(bytes, start, count, out)) {
      // What refers to bytes that aren't there is short of room, too.
      if (out.room >= most) throw new DamagedData("more comes out of it than its blocks can hold")
      out.grow()
    }
  } catch { case e: ZstdException => throw new DamagedData(String.valueOf(e.getMessage)) }

  /** Decompress; false if there isn't room. All is made again then, but the buffer will serve. */
  private def fits(bytes: Array[Byte], start: Int, count: Int, out: PlainBytes): Boolean = try {
    out.used = context.decompressByteArray(out.array, 0, out.array.length, bytes, start, count)
    true
  } catch { case e: ZstdException if e.getErrorCode == Zstd.errDstSizeTooSmall => false }

  /** What the frames can hold by the number of their blocks; DamagedData if they aren't whole. */
  private def plainBytesMax(bytes: Array[Byte], start: Int, stop: Int): Long = {
    var at = start
    var most = 0L
    do {
      val magic = if (stop - at < FrameBytesMin) cut() else LittleEndian.get(bytes, at, 4)
      if ((magic & SkippableMask) == SkippableMagic) {
        val size = LittleEndian.get(bytes, at + 4, 4) & 0xffffffffL
        if (size > stop - at - 8) cut()
        at += 8 + size.toInt
      } else {
        if (magic != Magic) throw new DamagedData("it is no zstd frame")
        val flags = bytes(at + FlagsAt) & 0xff
        val isSingle = (flags & SingleSegment) != 0
        if (!isSingle && (bytes(at + WindowAt) & 0xff) > WindowMax) {
          throw new DamagedData("a window is over 128 MiB")
        }
        at += WindowAt + (if (isSingle) 0 else 1) + dictionaryBytes(flags & 3) +
          sizeBytes(flags >> 6, isSingle)
        var isLast = false
        while (!isLast) {
          val block = if (stop - at < 3) cut() else LittleEndian.get(bytes, at, 3)
          val size = block >> 3
          isLast = (block & 1) != 0
          most += (if ((block >> 1 & 3) == Compressed) BlockBytesMax else size)
          at += 3 + (if ((block >> 1 & 3) == Repeated) 1 else size)
        }
        if ((flags & HasChecksum) != 0) at += 4
        if (at > stop) cut()
      }
    } while (at < stop)
    most
  }

  private def cut(): Nothing = throw new DamagedData("the stream is cut")

  def release(): Unit = context.close()
}

private object ZstdReader {
  private final val Magic = 0xfd2fb528
  private final val SkippableMagic = 0x184d2a50
  private final val SkippableMask = 0xfffffff0
  private final val FrameBytesMin = 8 // a skippable one's
  private final val FlagsAt = 4
  private final val WindowAt = 5
  private final val SingleSegment = 0x20
  private final val HasChecksum = 0x04
  /** 2^27 bytes: the exponent less 10 in the upper five bits, and no eighths more. */
  private val WindowMax = (27 - 10) << 3

  // Types of blocks.
  private final val Repeated = 1
  private final val Compressed = 2
  private final val BlockBytesMax = 128 << 10

  private final val RatioExpected = 8L
  private final val EarlyBytes = 1L << 20

  /** Bytes of a field, by its bits of the flags. */
  private def dictionaryBytes(bits: Int): Int = (1 << bits) >> 1
  private def sizeBytes(bits: Int, isSingle: Boolean): Int =
    if (bits == 0) { if (isSingle) 1 else 0 } else 1 << bits
}
