package sparklog.format

import java.io.IOException

import org.xerial.snappy.{Snappy, SnappyError}

/**
 * Decompresses snappy in the framing of xerial, (i32 size, block)* after 16 bytes, or as a single
 * raw block.
 */
private[format] final class SnappyReader {
  import SnappyReader._

  def read(bytes: Array[Byte], start: Int, count: Int, out: PlainBytes): Unit = {
    val stop = start + count
    if (!isFramed(bytes, start, stop)) block(bytes, start, stop, out)
    else {
      if (count < FrameHeaderBytes) throw new DamagedData("the header is truncated")
      var at = start + FrameHeaderBytes
      while (at < stop) {
        if (stop - at < 4) throw new DamagedData("a block size is truncated")
        val size = BatchHeader.intAt(bytes, at)
        at += 4
        if (size < 0 || size > stop - at) throw new DamagedData("a block is truncated")
        block(bytes, at, at + size, out)
        at += size
      }
    }
  }

  private def isFramed(bytes: Array[Byte], at: Int, stop: Int): Boolean =
    stop - at >= Magic.length &&
      java.util.Arrays.equals(bytes, at, at + Magic.length, Magic, 0, Magic.length)

  private def block(bytes: Array[Byte], at: Int, stop: Int, out: PlainBytes): Unit = {
    val size = claim(bytes, at, stop)
    // A copy expands 2 bytes to at most 64, so a larger declared size is wrong.
    if (size > RatioMax * (stop - at)) throw new DamagedData(
      s"a block of ${stop - at} bytes declares $size uncompressed bytes")
    out.reserve(size)
    try out.used += Snappy.rawUncompress(bytes, at, stop - at, out.array, out.used)
    catch {
      case e: IOException => throw new DamagedData(String.valueOf(e.getMessage))
      case e: SnappyError => throw new DamagedData(String.valueOf(e.getMessage))
    }
  }

  /** Return the uncompressed size that a block declares. */
  private def claim(bytes: Array[Byte], at: Int, stop: Int): Long = {
    val last = math.min(stop, at + Varint.IntBytesMax)
    var size = 0L
    var from = at
    while (from < last && bytes(from) < 0) {
      size |= (bytes(from) & 0x7fL) << 7 * (from - at)
      from += 1
    }
    if (from == last) throw new DamagedData("a block has no size")
    size | bytes(from).toLong << 7 * (from - at)
  }
}

private object SnappyReader {
  private val Magic = Array[Byte](-126, 'S', 'N', 'A', 'P', 'P', 'Y', 0)
  private final val FrameHeaderBytes = 16
  private final val RatioMax = 32L
}
