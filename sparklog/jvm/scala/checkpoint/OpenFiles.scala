package sparklog.checkpoint

import java.lang.management.ManagementFactory
import java.util.LinkedHashMap

import com.sun.management.UnixOperatingSystemMXBean

/**
 * Which partitions of this JVM have their files open, the longest unused first. Above the bound the
 * first ones rest: they close their files and keep what they know of them. Shared by all class
 * loaders of the jar, as the bound is the process's: in the system properties, in classes of the
 * JVM.
 */
object OpenFiles {
  /** Partitions, with a file each as a rule: an eighth of what the process may open. */
  val Default: Int = ManagementFactory.getOperatingSystemMXBean match {
    case system: UnixOperatingSystemMXBean =>
      (system.getMaxFileDescriptorCount / 8).max(128).min(2048).toInt
    case _ => 128
  }

  /** `partition` is being used, of which `max` may have their files open; its lock is held. */
  def used(partition: Partition, max: Int): Unit = {
    val eldest = open.synchronized {
      open.remove(partition)
      open.put(partition, () => partition.rest())
      val keys = open.values().iterator()
      Iterator.fill(open.size - max)(keys.next()).toList
    }
    eldest.foreach(_.run()) // one that is being used goes on, and rests another time
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
