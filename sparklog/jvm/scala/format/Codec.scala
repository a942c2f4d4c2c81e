package sparklog.format

/** A compression codec. `id` is in bits 0-2 of a batch's attributes. */
sealed abstract class Codec(val id: Int, val name: String) {
  override def toString: String = name
}

object Codec {
  case object Uncompressed extends Codec(0, "none")
  case object Gzip extends Codec(1, "gzip")
  case object Snappy extends Codec(2, "snappy")
  case object Lz4 extends Codec(3, "lz4")
  case object Zstd extends Codec(4, "zstd")

  private val byId = Array[Codec](Uncompressed, Gzip, Snappy, Lz4, Zstd)

  /** The bits of the codec in a batch's attributes. */
  final val Mask = 0x07

  def isKnown(id: Int): Boolean = id >= 0 && id < byId.length

  /** Return the codec with this id. Throws an ArrayIndexOutOfBoundsException for an unknown id. */
  def of(id: Int): Codec = byId(id)

  /**
   * Return the codec with this name, as in Python's plans. Throws an IllegalArgumentException for
   * another name.
   */
  def named(name: String): Codec = byId.find(_.name == name).getOrElse(
    throw new IllegalArgumentException(
      s"the codec $name is unknown; it must be one of ${byId.mkString(", ")}"))
}
