package sparklog.format

import com.github.luben.zstd.{Zstd, ZstdDecompressCtx, ZstdException}

/**
 * Reads one or several zstd frames, in one shot, so that a window needs no memory besides the
 * output. Source: RFC 8878.
 */
private[format] final class ZstdReader {
  import ZstdReader._

  private val context = new ZstdDecompressCtx

  def read(bytes: Array[Byte], start: Int, count: Int, out: PlainBytes): Unit =
    try {
      val most = ZstdFrames.plainBytesMax(bytes, start, start + count)
      val some = math.max(RatioExpected * count, EarlyBytes)
      out.reserve(math.min(math.min(most, some), out.maxRoom))
      while (!fits(bytes, start, count, out)) {
        // References to missing bytes are reported as missing space, too.
        if (out.room >= most) overfull() else out.grow()
      }
      if (out.used > most) overfull()
    } catch { case e: ZstdException => throw new DamagedData(String.valueOf(e.getMessage)) }

  /**
   * Decompress; return false if there is not enough space. It is then repeated with a larger
   * buffer.
   */
  private def fits(bytes: Array[Byte], start: Int, count: Int, out: PlainBytes): Boolean =
    try {
      out.used = context.decompressByteArray(out.array, 0, out.array.length, bytes, start, count)
      true
    } catch { case e: ZstdException if e.getErrorCode == Zstd.errDstSizeTooSmall => false }

  private def overfull(): Nothing =
    throw new DamagedData("more comes out of it than its blocks can hold")

  def release(): Unit = context.close()
}

private object ZstdReader {
  private final val RatioExpected = 8L
  private final val EarlyBytes = 1L << 20
}
