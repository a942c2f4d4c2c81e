package sparklog.format

/** How a batch's records are compressed; `id` is in bits 0-2 of its attributes. */
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

  /** The bits of a batch's attributes that say its codec. */
  final val Mask = 0x07

  def isKnown(id: Int): Boolean = id >= 0 && id < byId.length

  /** An ArrayIndexOutOfBoundsException if it isn't known. */
  def of(id: Int): Codec = byId(id)

  /** Of the names that Python's plans have. An IllegalArgumentException for another. */
  def named(name: String): Codec = byId.find(_.name == name).getOrElse(
    throw new IllegalArgumentException(
      s"unknown codec $name; known are ${byId.mkString(", ")}"))
}
