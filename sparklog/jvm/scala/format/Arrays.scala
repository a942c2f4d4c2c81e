package sparklog.format

/** How large arrays get that grow. */
private[sparklog] object Arrays {
  /** The most that a JVM allocates. */
  val SizeMax: Int = Int.MaxValue - 8

  /**
   * The size for an array of `size` bytes that must hold `needed`: at least twice as large.
   * An OutOfMemoryError, as the JVM's own, if no array is so large.
   */
  def grown(size: Int, needed: Long): Int = {
    if (needed > SizeMax) throw new OutOfMemoryError(s"$needed bytes don't fit an array")
    math.min(math.max(2L * size, needed), SizeMax).toInt
  }
}
