package sparklog.format

/** The sizes of growing arrays. */
private[sparklog] object Arrays {
  /** The maximum size that a JVM allocates. */
  val SizeMax: Int = Int.MaxValue - 8

  /**
   * The new size of an array of `size` bytes that must have `needed`: at least twice as large. An
   * OutOfMemoryError, like the JVM's own, if no array can be that large.
   */
  def grown(size: Int, needed: Long): Int = {
    if (needed > SizeMax) throw new OutOfMemoryError(s"$needed bytes don't fit an array")
    math.min(math.max(2L * size, needed), SizeMax).toInt
  }
}
