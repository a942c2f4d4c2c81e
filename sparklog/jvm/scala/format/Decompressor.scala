package sparklog.format

/**
 * Decompresses the records of batches, in each framing that Kafka reads (compression.py says
 * which), into one buffer that grows as bytes come, to `maxBytes`. One thread's; `release` it at
 * the end.
 */
final class Decompressor(maxBytes: Int) {
  private val plain = new PlainBytes(maxBytes)
  private var gzip: GzipReader = _
  private var snappy: SnappyReader = _
  private var lz4: Lz4Reader = _
  private var zstd: ZstdReader = _

  /** What came out last: as many bytes as `apply` said, from the first on. */
  def buffer: Array[Byte] = plain.array

  /**
   * Decompress `count` bytes at `at` into `buffer`; how many bytes come out.
   *
   * DamagedData: they are cut, or none of this codec. TooLarge: more than `maxBytes` come out, or
   * so nearly as many that a codec has no room to work.
   */
  def apply(codec: Codec, bytes: Array[Byte], at: Int, count: Int): Int = {
    plain.used = 0
    codec match {
      case Codec.Gzip =>
        if (gzip == null) gzip = new GzipReader
        gzip.read(bytes, at, count, plain)
      case Codec.Snappy =>
        if (snappy == null) snappy = new SnappyReader
        snappy.read(bytes, at, count, plain)
      case Codec.Lz4 =>
        if (lz4 == null) lz4 = new Lz4Reader
        lz4.read(bytes, at, count, plain)
      case Codec.Zstd =>
        if (zstd == null) zstd = new ZstdReader
        zstd.read(bytes, at, count, plain)
      case Codec.Uncompressed => throw new IllegalArgumentException("it is no codec")
    }
    plain.used
  }

  /** Bytes of memory that it keeps, those of the codecs' libraries aside. */
  def heldBytes: Long = plain.array.length

  /** Give back all memory; it can go on afterwards. */
  def release(): Unit = {
    plain.release()
    if (gzip != null) gzip.release()
    if (zstd != null) zstd.release()
    gzip = null
    zstd = null
  }
}

/** What is wrong with compressed records. */
sealed abstract class CompressedDataException(message: String)
    extends java.io.IOException(message) {
  /** They come to the thread that asked, soon after; where they began is no news. */
  override def fillInStackTrace(): Throwable = this
}

final class DamagedData(message: String) extends CompressedDataException(message)

final class TooLarge(maxBytes: Int)
    extends CompressedDataException(s"more than $maxBytes bytes come out of one batch")
