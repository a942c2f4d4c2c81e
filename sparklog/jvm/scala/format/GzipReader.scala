package sparklog.format

import java.util.zip.{CRC32, DataFormatException, Inflater}

/**
 * Decompresses gzip with one or several members. Headers and trailers are checked as by zlib,
 * because java.util.zip's GZIPInputStream accepts any bytes behind the first member. Source: RFC
 * 1952.
 */
private[format] final class GzipReader {
  import GzipReader._

  private val inflater = new Inflater(true)

  def read(bytes: Array[Byte], start: Int, count: Int, out: PlainBytes): Unit = {
    val stop = start + count
    var at = start
    do at = member(bytes, at, stop, out) while (at < stop)
  }

  /** Decompress a member. Return the position behind it. */
  private def member(bytes: Array[Byte], start: Int, stop: Int, out: PlainBytes): Int = {
    val body = header(bytes, start, stop)
    val first = out.used
    inflater.reset()
    inflater.setInput(bytes, body, stop - body)
    try {
      while (!inflater.finished) {
        if (out.room == 0) out.grow()
        val made = inflater.inflate(out.array, out.used, out.room)
        out.used += made
        if (made == 0 && !inflater.finished) throw new DamagedData("the stream is truncated")
      }
    } catch {
      case e: DataFormatException => throw new DamagedData(String.valueOf(e.getMessage))
    }
    val end = stop - inflater.getRemaining
    if (stop - end < TrailerBytes) throw new DamagedData("the stream is truncated")
    if (LittleEndian.get(bytes, end, 4) != crcOf(out.array, first, out.used - first)) {
      throw new DamagedData("incorrect data check")
    }
    if (LittleEndian.get(bytes, end + 4, 4) != out.used - first) {
      throw new DamagedData("incorrect length check")
    }
    end + TrailerBytes
  }

  /** Check the header of a member. Return the position behind it. */
  private def header(bytes: Array[Byte], start: Int, stop: Int): Int = {
    val flags = if (stop - start < HeaderBytes) cut() else bytes(start + 3)
    if (LittleEndian.get(bytes, start, 2) != Magic) throw new DamagedData("incorrect header check")
    if (bytes(start + 2) != Deflated) throw new DamagedData("unknown compression method")
    if ((flags & Reserved) != 0) throw new DamagedData("unknown header flags set")
    var at = start + HeaderBytes
    if ((flags & HasExtra) != 0) {
      if (stop - at < 2) cut()
      at += 2 + LittleEndian.get(bytes, at, 2)
    }
    if ((flags & HasName) != 0) at = behindText(bytes, at, stop)
    if ((flags & HasComment) != 0) at = behindText(bytes, at, stop)
    if ((flags & HasCrc) != 0) {
      if (stop - at < 2) cut()
      if (LittleEndian.get(bytes, at, 2) != (crcOf(bytes, start, at - start) & 0xffff)) {
        throw new DamagedData("header crc mismatch")
      }
      at += 2
    }
    if (at > stop) cut() else at
  }

  private def behindText(bytes: Array[Byte], start: Int, stop: Int): Int = {
    var at = start
    while (at < stop && bytes(at) != 0) at += 1
    if (at < stop) at + 1 else cut()
  }

  private def cut(): Nothing = throw new DamagedData("the stream is truncated")

  private def crcOf(bytes: Array[Byte], at: Int, count: Int): Int = {
    val crc = new CRC32
    crc.update(bytes, at, count)
    crc.getValue.toInt
  }

  def release(): Unit = inflater.end()
}

private object GzipReader {
  private final val Magic = 0x8b1f
  private final val Deflated = 8
  private final val HeaderBytes = 10
  private final val TrailerBytes = 8
  private final val HasCrc = 0x02
  private final val HasExtra = 0x04
  private final val HasName = 0x08
  private final val HasComment = 0x10
  private final val Reserved = 0xe0
}
