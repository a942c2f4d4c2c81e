package sparklog.format

import com.github.luben.zstd.{Zstd, ZstdDecompressCtx, ZstdException}

/**
 * Decompresses one or several zstd frames in one shot, so that a window needs no memory besides the
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
        // zstd reports references to missing bytes as missing space too, so growing may not help.
        if (out.room >= most) overfull() else out.grow()
      }
      if (out.used > most) overfull()
    } catch { case e: ZstdException => throw new DamagedData(String.valueOf(e.getMessage)) }

  /**
   * Decompress the frames. Return false if there is not enough space; the caller then grows the
   * buffer and tries again.
   */
  private def fits(bytes: Array[Byte], start: Int, count: Int, out: PlainBytes): Boolean =
    try {
      out.used = context.decompressByteArray(out.array, 0, out.array.length, bytes, start, count)
      true
    } catch { case e: ZstdException if e.getErrorCode == Zstd.errDstSizeTooSmall => false }

  private def overfull(): Nothing =
    throw new DamagedData("the data decompress to more bytes than their blocks can contain")

  def release(): Unit = context.close()
}

private object ZstdReader {
  private final val RatioExpected = 8L
  private final val EarlyBytes = 1L << 20
}
