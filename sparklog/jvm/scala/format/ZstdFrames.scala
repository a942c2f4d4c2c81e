package sparklog.format

/**
 * Reads the headers of zstd frames, to check what zstd's one-shot decompression does not check, but
 * the streams of zstd do, which other readers use: windows have at most 128 MiB, and blocks are not
 * larger than their window.
 *
 *   i32 magic; flags; [window]; [dictionary]; [content size]; (u24 size, type and whether it is the
 *   last; block)*; [i32 checksum]                                                little-endian
 *
 * Source: RFC 8878, 3.1.1.
 */
private[format] object ZstdFrames {
  private final val Magic = 0xfd2fb528
  private final val SkippableMagic = 0x184d2a50
  private final val SkippableMask = 0xfffffff0
  private final val BytesMin = 8 // of a skippable frame
  private final val FlagsAt = 4
  private final val WindowAt = 5
  private final val SingleSegment = 0x20
  private final val HasChecksum = 0x04
  private final val WindowBytesMax = 128L << 20

  // Types of blocks.
  private final val Repeated = 1
  private final val Compressed = 2
  private final val BlockBytesMax = 128 << 10

  /**
   * Return the maximum uncompressed size of the frames. Throws DamagedData if the frames are
   * incomplete.
   */
  def plainBytesMax(bytes: Array[Byte], start: Int, stop: Int): Long = {
    var at = start
    var most = 0L
    do {
      val magic = if (stop - at < BytesMin) cut() else LittleEndian.get(bytes, at, 4)
      if ((magic & SkippableMask) == SkippableMagic) {
        val size = LittleEndian.get(bytes, at + 4, 4) & 0xffffffffL
        if (size > stop - at - 8) cut()
        at += 8 + size.toInt
      } else {
        if (magic != Magic) throw new DamagedData("the data are not a zstd frame")
        val flags = bytes(at + FlagsAt) & 0xff
        val isSingle = (flags & SingleSegment) != 0
        val window = if (isSingle) 0 else windowBytes(bytes(at + WindowAt) & 0xff)
        if (window > WindowBytesMax)
          throw new DamagedData("a frame has a window of more than 128 MiB")
        val saysSize = isSingle || flags >> 6 != 0
        val blockMax = if (saysSize) BlockBytesMax else math.min(window, BlockBytesMax).toInt
        at += WindowAt + (if (isSingle) 0 else 1) + dictionaryBytes(flags & 3) +
          sizeBytes(flags >> 6, isSingle)
        var isLast = false
        while (!isLast) {
          val block = if (stop - at < 3) cut() else LittleEndian.get(bytes, at, 3)
          val size = block >> 3
          val kind = block >> 1 & 3
          if (size > blockMax && !saysSize)
            throw new DamagedData("a block is larger than its window")
          isLast = (block & 1) != 0
          most += (if (kind == Compressed) blockMax else size)
          at += 3 + (if (kind == Repeated) 1 else size)
        }
        if ((flags & HasChecksum) != 0) at += 4
        if (at > stop) cut()
      }
    } while (at < stop)
    most
  }

  private def cut(): Nothing = throw new DamagedData("the stream is truncated")

  /**
   * Return the window size. The upper five bits of `code` are the exponent, the lower three are
   * eighths.
   */
  private def windowBytes(code: Int): Long = {
    val base = 1L << (10 + (code >> 3))
    base + base / 8 * (code & 7)
  }

  /** Return the size of a header field, which bits of the flags determine. */
  private def dictionaryBytes(bits: Int): Int = (1 << bits) >> 1
  private def sizeBytes(bits: Int, isSingle: Boolean): Int =
    if (bits == 0) { if (isSingle) 1 else 0 }
    else 1 << bits
}
