package sparklog.checkpoint

import java.lang.management.ManagementFactory
import java.util.LinkedHashMap

import com.sun.management.UnixOperatingSystemMXBean

/**
 * The partitions of this JVM that have open files, least recently used first. Above the limit the
 * first partitions close their files but keep their state in memory. The list is stored in the
 * system properties, in classes of the JVM, because the limit applies to the process and several
 * class loaders may load this jar.
 */
object OpenFiles {
  /**
   * The default limit on partitions with open files, each with about one file: an eighth of the
   * number of files that the process may open.
   */
  val Default: Int = ManagementFactory.getOperatingSystemMXBean match {
    case system: UnixOperatingSystemMXBean =>
      (system.getMaxFileDescriptorCount / 8).max(128).min(2048).toInt
    case _ => 128
  }

  /**
   * Record a use of `partition`, whose mutex the caller holds, and close files of other partitions
   * if more than `max` partitions have open files.
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

  private val open: LinkedHashMap[AnyRef, Runnable] =
    JvmWide("sparklog.checkpoint.open")(new LinkedHashMap[AnyRef, Runnable])
}
