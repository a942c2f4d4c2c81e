package sparklog.checkpoint

import java.lang.management.ManagementFactory
import java.util.LinkedHashMap

import com.sun.management.UnixOperatingSystemMXBean

/**
 * The partitions of this JVM with open files, least recently used first. Above the limit the first
 * ones close their files and keep their state. Shared by all class loaders of the jar, because the
 * limit applies to the process: stored in the system properties, in classes of the JVM.
 */
object OpenFiles {
  /** The default limit, for about one file per partition: an eighth of the process's open files. */
  val Default: Int = ManagementFactory.getOperatingSystemMXBean match {
    case system: UnixOperatingSystemMXBean =>
      (system.getMaxFileDescriptorCount / 8).max(128).min(2048).toInt
    case _ => 128
  }

  /**
   * Record a use of `partition`; at most `max` partitions may have open files. Its lock is taken.
   */
  def used(partition: Partition, max: Int): Unit = {
    val eldest = open.synchronized {
      open.remove(partition)
      open.put(partition, () => partition.rest())
      val keys = open.values().iterator()
      Iterator.fill(open.size - max)(keys.next()).toList
    }
    eldest.foreach(_.run()) // a partition in use keeps its files open until later
  }

  def closed(partition: Partition): Unit = open.synchronized(open.remove(partition))

  private val open: LinkedHashMap[AnyRef, Runnable] = {
    val properties = System.getProperties.asInstanceOf[java.util.Map[AnyRef, AnyRef]]
    properties.synchronized {
      properties.computeIfAbsent("sparklog.checkpoint.open",
        _ => new LinkedHashMap[AnyRef, Runnable])
        .asInstanceOf[LinkedHashMap[AnyRef, Runnable]]
    }
  }
}
