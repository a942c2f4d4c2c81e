package sparklog.checkpoint

import java.io.IOException
import java.nio.ByteBuffer
import java.nio.channels.{FileChannel, FileLock, OverlappingFileLockException}
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Path, StandardOpenOption}
import java.nio.file.attribute.BasicFileAttributes
import java.util.AbstractMap.SimpleImmutableEntry
import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.locks.ReentrantLock

/**
 * Locks on bytes of the file `sparklog.lock`, which exclude other processes and, with a mutex per
 * byte, other threads of this JVM.
 *
 * POSIX releases all locks of a process on a file when the process closes any descriptor of that
 * file. A JVM therefore has a single channel per lock file, whatever path leads to the file, and
 * closes the channel only while it holds no lock (PROTOCOL, C3). The state is stored in the system
 * properties, in classes of the JVM, because several class loaders may load this jar.
 */
final class Locks(file: Path, timeoutMs: () => Long) {
  import Locks._

  /**
   * Run `body` while this thread holds the lock at `position`. Throws an IOException if another
   * process holds the lock longer than the timeout: without a timeout a process that hangs would
   * block tasks forever.
   */
  def hold[T](position: Long)(body: => T): T = {
    val id = name()
    val mutex = mutexes.computeIfAbsent(s"$id@$position", _ => new ReentrantLock)
    mutex.lock()
    try {
      if (mutex.getHoldCount > 1) {
        body
      } else {
        val lock = waitFor(id, position)
        try body
        finally release(id, lock)
      }
    } finally mutex.unlock()
  }

  private def waitFor(id: String, position: Long): FileLock = {
    val end = System.nanoTime() + timeoutMs() * 1000000
    var pauseMs = 1L
    var lock = tryLock(id, position)
    while (lock.isEmpty) {
      if (System.nanoTime() > end) throw new IOException(
        s"another process has held the lock at byte $position of $file for ${timeoutMs()} ms. " +
          s"Nothing was written. Find the process with: fuser $file")
      Thread.sleep(pauseMs)
      pauseMs = math.min(20, pauseMs * 2)
      lock = tryLock(id, position)
    }
    lock.get
  }

  private def tryLock(id: String, position: Long): Option[FileLock] = {
    if (isReadOnly) throw new IOException(
      s"$file is not writable (the mount is read-only, or another user owns the file). Nothing " +
        "was written; the checkpoint can only be read and archived")
    use(id) { channel =>
      val lock =
        try Option(channel.tryLock(position, 1, false))
        catch {
          case _: OverlappingFileLockException => None // another thread of this JVM has the lock
        }
      if (lock.isDefined) holders.merge(id, 1, (a: Integer, b: Integer) => a + b)
      lock
    }
  }

  private def release(id: String, lock: FileLock): Unit =
    try lock.release()
    finally holders.merge(id, -1, (a: Integer, b: Integer) => a + b)

  /**
   * Take the lock at `position` for `owner` until `giveBack`. The lock moves from another owner in
   * this JVM to the new one. Return false if another process holds it.
   */
  def take(position: Long, owner: String): Boolean = {
    val id = name()
    taken.compute(
      s"$id@$position",
      (_, known) =>
        // A restarted query of this JVM succeeds its own earlier run, whose thread may still be
        // ending.
        if (known != null && known.getValue.isValid) new SimpleImmutableEntry(owner, known.getValue)
        else tryLock(id, position).map(new SimpleImmutableEntry(owner, _)).orNull
    ) != null
  }

  /**
   * Release the lock at `position` of the lock file with inode `identity`, unless another owner has
   * taken the lock since.
   */
  def giveBack(position: Long, owner: String, identity: AnyRef): Unit =
    taken.computeIfPresent(s"$identity@$position",
      (_, known) =>
        if (known.getKey != owner) known
        else {
          release(identity.toString, known.getValue)
          null
        })

  /**
   * Return the present inode of the lock file. A different inode means that the checkpoint was
   * replaced.
   */
  def identity(): AnyRef = Files.readAttributes(file, classOf[BasicFileAttributes]).fileKey()

  private def name(): String = identity().toString

  /** Whether the lock file is read-only, so that locking is impossible. */
  def isReadOnly: Boolean = !Files.isWritable(file)

  /** Return the content of the lock file (the boot id of its last user); "" for a new file. */
  def text(): String = use(name()) { channel =>
    val bytes = ByteBuffer.allocate(256)
    channel.read(bytes, 0)
    new String(bytes.array(), 0, bytes.position(), UTF_8)
  }

  def write(text: String): Unit = use(name()) { channel =>
    channel.write(ByteBuffer.wrap(text.getBytes(UTF_8)), 0)
    channel.force(false)
  }

  /**
   * Call `what` with the lock file's channel, which is not closed meanwhile. `what` must not wait,
   * because it blocks all other uses of this channel.
   */
  private def use[T](id: String)(what: FileChannel => T): T = {
    var done: Option[T] = None
    channels.compute(id,
      (_, known) => {
        val channel = if (known == null) Locks.open(file) else known
        done = Some(what(channel))
        channel
      })
    done.get
  }

  /** Close the channel of the lock file with inode `identity`, unless this JVM holds a lock. */
  def rest(identity: AnyRef): Unit = channels.computeIfPresent(
    identity.toString,
    // Closing the channel would release every lock that this process has on the file.
    (id, channel) =>
      if (holders.getOrDefault(id, 0) > 0) channel
      else {
        channel.close()
        null
      }
  )

  /** Remove the state of a lock file that was deleted. */
  def forget(identity: AnyRef): Unit = {
    rest(identity)
    mutexes.entrySet().removeIf(e => e.getKey.startsWith(s"$identity@") && !e.getValue.isLocked)
    holders.remove(identity.toString, 0)
  }
}

object Locks {
  /**
   * Position of the lock for creating and deleting partition directories, and for recovery after a
   * power cut.
   */
  val Directories = 0L
  /** Position of the lock that the driver holds while a query runs. */
  val Running = 1L

  /** Return the position of the write lock of a partition. */
  def ofPartition(name: String): Long = 16L + Layout.tag(name)

  private def open(file: Path): FileChannel =
    if (Files.isWritable(file)) {
      FileChannel.open(file, StandardOpenOption.READ, StandardOpenOption.WRITE)
    } else FileChannel.open(file, StandardOpenOption.READ)

  // The keys are inodes, not paths, because several paths may lead to the same lock file.
  private val mutexes = shared[ReentrantLock]("sparklog.checkpoint.mutexes")
  private val channels = shared[FileChannel]("sparklog.checkpoint.channels")
  private val holders = shared[Integer]("sparklog.checkpoint.holders")
  private val taken =
    shared[SimpleImmutableEntry[String, FileLock]]("sparklog.checkpoint.taken")

  private def shared[V](name: String): ConcurrentHashMap[String, V] =
    JvmWide(name)(new ConcurrentHashMap[String, V])
}
