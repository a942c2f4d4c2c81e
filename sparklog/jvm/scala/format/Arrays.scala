package sparklog.format

/** Computes the sizes of growing arrays. */
private[sparklog] object Arrays {
  /** The maximum size that a JVM allocates. */
  val SizeMax: Int = Int.MaxValue - 8

  /**
   * Return the new size of an array of `size` bytes that must have `needed` bytes: at least twice
   * the old size. Throws an OutOfMemoryError, like the JVM itself, if no array can have that size.
   */
  def grown(size: Int, needed: Long): Int = {
    if (needed > SizeMax)
      throw new OutOfMemoryError(s"$needed bytes are more than a JVM array can have")
    math.min(math.max(2L * size, needed), SizeMax).toInt
  }
}
