package sparklog.format

/**
 * Decompresses the records of batches, in all framings that Kafka reads (see compression.py), into
 * a buffer that grows up to `maxBytes`. For one thread, which calls `release` at the end.
 */
final class Decompressor(maxBytes: Int) {
  private val plain = new PlainBytes(maxBytes)
  private var gzip: GzipReader = _
  private var snappy: SnappyReader = _
  private var lz4: Lz4Reader = _
  private var zstd: ZstdReader = _

  /** The buffer with the last output, whose size is the number that `apply` returned. */
  def buffer: Array[Byte] = plain.array

  /**
   * Decompress `count` bytes at `at` into `buffer`. Return the number of output bytes.
   *
   * Throws DamagedData if the bytes are incomplete or not of this codec, and TooLarge if the output
   * exceeds `maxBytes` or is so close to it that the codec has no space to work.
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
      case Codec.Uncompressed =>
        throw new IllegalArgumentException("an uncompressed batch can't be decompressed")
    }
    plain.used
  }

  /** Bytes of allocated memory, without those of the codecs' libraries. */
  def heldBytes: Long = plain.array.length

  /** Release all memory. The object can be used again. */
  def release(): Unit = {
    plain.release()
    if (gzip != null) gzip.release()
    if (zstd != null) zstd.release()
    gzip = null
    zstd = null
  }
}

/** A fault of compressed records. */
sealed abstract class CompressedDataException(message: String)
    extends java.io.IOException(message) {
  /** The caller handles the exception, so a stack trace is not needed. */
  override def fillInStackTrace(): Throwable = this
}

final class DamagedData(message: String) extends CompressedDataException(message)

final class TooLarge(maxBytes: Int)
    extends CompressedDataException(s"a batch decompresses to more than $maxBytes bytes")
