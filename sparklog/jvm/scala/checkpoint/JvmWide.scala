package sparklog.checkpoint

/**
 * Objects that exist once in a JVM, although several class loaders may load this jar: they are
 * stored in the system properties. Their classes must be those of the JVM or of Spark.
 */
object JvmWide {
  /** Return the object of that name, which `make` creates at the first call. */
  def apply[T <: AnyRef](name: String)(make: => T): T = {
    val properties = System.getProperties.asInstanceOf[java.util.Map[AnyRef, AnyRef]]
    // Without this lock two callers could create two objects: the map need not be concurrent.
    properties.synchronized(properties.computeIfAbsent(name, _ => make)).asInstanceOf[T]
  }
}
