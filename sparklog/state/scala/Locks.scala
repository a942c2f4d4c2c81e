package sparklog.checkpoint

import java.io.IOException
import java.nio.channels.{FileChannel, FileLock}
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Path, StandardOpenOption}
import java.nio.file.attribute.BasicFileAttributes
import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.locks.ReentrantLock
import java.util.zip.CRC32C

/**
 * Byte ranges of `sparklog.lock`, held by this JVM against other processes, and within it by one
 * thread. POSIX frees a process's locks when it closes any descriptor of the file, so that a JVM has
 * one channel for a lock file and never closes it (PROTOCOL, C3). The jar may be loaded by several
 * class loaders: what they must share lies in the system properties, in classes of the JVM's own.
 */
final class Locks(file: Path, timeoutMs: () => Long) {
  import Locks._

  /**
   * Run `body` while this JVM and thread alone hold the lock at `position`. An IOException if another
   * process holds it for too long: one that stands still would hold up tasks for ever.
   */
  def hold[T](position: Long)(body: => T): T = {
    val mutex = mutexes.computeIfAbsent(s"$file@$position", _ => new ReentrantLock)
    mutex.lock()
    try {
      if (mutex.getHoldCount > 1) {
        body
      } else {
        val lock = waitFor(position)
        try body finally lock.release()
      }
    } finally mutex.unlock()
  }

  private def waitFor(position: Long): FileLock = {
    val end = System.nanoTime() + timeoutMs() * 1000000
    var pauseMs = 1L
    var lock = channel().tryLock(position, 1, false)
    while (lock == null) {
      if (System.nanoTime() > end) throw new IOException(
        s"another process has held the lock at byte $position of $file for ${timeoutMs()} ms: find " +
          s"it by: fuser $file. Nothing was written")
      Thread.sleep(pauseMs)
      pauseMs = math.min(20, pauseMs * 2)
      lock = channel().tryLock(position, 1, false)
    }
    lock
  }

  /** Take the lock at `position` until it is given back; None if another process has it. */
  def take(position: Long): Option[FileLock] = Option(taken.compute(
    s"$file@${identity()}@$position",
    (_, known) => if (known != null && known.isValid) known
      else channel().tryLock(position, 1, false)))

  /** The inode of the lock file now: another one means that another checkpoint lies here. */
  def identity(): AnyRef = Files.readAttributes(file, classOf[BasicFileAttributes]).fileKey()

  /** What the lock file says (the boot id of its last user); "" in a new one. */
  def text(): String = {
    val bytes = java.nio.ByteBuffer.allocate(256)
    channel().read(bytes, 0)
    new String(bytes.array(), 0, bytes.position(), UTF_8)
  }

  def write(text: String): Unit = {
    val out = channel()
    out.write(java.nio.ByteBuffer.wrap(text.getBytes(UTF_8)), 0)
    out.force(false)
  }

  private def channel(): FileChannel =
    channels.computeIfAbsent(s"$file@${identity()}", _ =>
      FileChannel.open(file, StandardOpenOption.READ, StandardOpenOption.WRITE))
}

object Locks {
  /** For creating and deleting partitions' directories, and for recovery after a power cut. */
  val Directories = 0L
  /** Held while a query runs. */
  val Running = 1L

  /** The write lock of a partition. */
  def ofPartition(name: String): Long = {
    val crc = new CRC32C
    crc.update(name.getBytes(UTF_8))
    16 + (crc.getValue & 0x3fffffffL)
  }

  private val mutexes = shared[ReentrantLock]("sparklog.checkpoint.mutexes")
  private val channels = shared[FileChannel]("sparklog.checkpoint.channels")
  private val taken = shared[FileLock]("sparklog.checkpoint.taken")

  private def shared[V](name: String): ConcurrentHashMap[String, V] = {
    val properties = System.getProperties.asInstanceOf[java.util.Map[AnyRef, AnyRef]]
    properties.computeIfAbsent(name, _ => new ConcurrentHashMap[String, V])
      .asInstanceOf[ConcurrentHashMap[String, V]]
  }
}
