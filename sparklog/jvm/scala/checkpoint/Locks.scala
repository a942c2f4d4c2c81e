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
 * Byte ranges of `sparklog.lock`, held by this JVM against other processes, and within it by one
 * thread. POSIX frees a process's locks when it closes any descriptor of the file, so that a JVM
 * has one channel for a lock file, by whatever path it came to it, and closes it only while it
 * holds no lock there (PROTOCOL, C3). The jar may be loaded by several class loaders: what they
 * must share lies in the system properties, in classes of the JVM's own.
 */
final class Locks(file: Path, timeoutMs: () => Long) {
  import Locks._

  /**
   * Run `body` while this JVM and thread alone hold the lock at `position`. An IOException if
   * another process holds it for too long: one that stands still would hold up tasks for ever.
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
        s"another process has held the lock at byte $position of $file for ${timeoutMs()} ms: " +
          s"find it by: fuser $file. Nothing was written")
      Thread.sleep(pauseMs)
      pauseMs = math.min(20, pauseMs * 2)
      lock = tryLock(id, position)
    }
    lock.get
  }

  private def tryLock(id: String, position: Long): Option[FileLock] = {
    if (isReadOnly) throw new IOException(
      s"$file can't be written (a read-only mount, or another user's): its checkpoint can be " +
        "read, and archived. Nothing was written")
    use(id) { channel =>
      val lock =
        try Option(channel.tryLock(position, 1, false))
        catch {
          case _: OverlappingFileLockException => None // another thread's, which holds it by itself
        }
      if (lock.isDefined) holders.merge(id, 1, (a: Integer, b: Integer) => a + b)
      lock
    }
  }

  private def release(id: String, lock: FileLock): Unit =
    try lock.release()
    finally holders.merge(id, -1, (a: Integer, b: Integer) => a + b)

  /**
   * Take the lock at `position` for `owner`, from whomever in this JVM has it; until it is given
   * back. False if another process has it.
   */
  def take(position: Long, owner: String): Boolean = {
    val id = name()
    taken.compute(
      s"$id@$position",
      (_, known) =>
        if (known != null && known.getValue.isValid) new SimpleImmutableEntry(owner, known.getValue)
        else tryLock(id, position).map(new SimpleImmutableEntry(owner, _)).orNull
    ) != null
  }

  /**
   * Give back what `owner` took at `position` of the lock file `identity`, unless it is another's.
   */
  def giveBack(position: Long, owner: String, identity: AnyRef): Unit =
    taken.computeIfPresent(s"$identity@$position",
      (_, known) =>
        if (known.getKey != owner) known
        else {
          release(identity.toString, known.getValue)
          null
        })

  /** The inode of the lock file now: another one means that another checkpoint lies here. */
  def identity(): AnyRef = Files.readAttributes(file, classOf[BasicFileAttributes]).fileKey()

  private def name(): String = identity().toString

  /** Whether the file can only be read, and no lock be had. */
  def isReadOnly: Boolean = !Files.isWritable(file)

  /** What the lock file says (the boot id of its last user); "" in a new one. */
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
   * Do something with the lock file's channel that neither waits nor lets it be closed meanwhile.
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

  /** Close the channel of the lock file `identity`, unless a lock is held there. */
  def rest(identity: AnyRef): Unit = channels.computeIfPresent(identity.toString,
    (id, channel) =>
      if (holders.getOrDefault(id, 0) > 0) channel
      else {
        channel.close()
        null
      })

  /** Forget what there was of a lock file that is gone. */
  def forget(identity: AnyRef): Unit = {
    rest(identity)
    mutexes.entrySet().removeIf(e => e.getKey.startsWith(s"$identity@") && !e.getValue.isLocked)
    holders.remove(identity.toString, 0)
  }
}

object Locks {
  /** For creating and deleting partitions' directories, and for recovery after a power cut. */
  val Directories = 0L
  /** Held while a query runs. */
  val Running = 1L

  /** The write lock of a partition. */
  def ofPartition(name: String): Long = 16L + Layout.tag(name)

  private def open(file: Path): FileChannel =
    if (Files.isWritable(file)) {
      FileChannel.open(file, StandardOpenOption.READ, StandardOpenOption.WRITE)
    } else FileChannel.open(file, StandardOpenOption.READ)

  // By the lock file's inode, or by that and the position: a path may lead there by a link.
  private val mutexes = shared[ReentrantLock]("sparklog.checkpoint.mutexes")
  private val channels = shared[FileChannel]("sparklog.checkpoint.channels")
  private val holders = shared[Integer]("sparklog.checkpoint.holders")
  private val taken =
    shared[SimpleImmutableEntry[String, FileLock]]("sparklog.checkpoint.taken")

  private def shared[V](name: String): ConcurrentHashMap[String, V] = {
    val properties = System.getProperties.asInstanceOf[java.util.Map[AnyRef, AnyRef]]
    properties.computeIfAbsent(name, _ => new ConcurrentHashMap[String, V])
      .asInstanceOf[ConcurrentHashMap[String, V]]
  }
}
