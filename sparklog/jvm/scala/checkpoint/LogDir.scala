package sparklog.checkpoint

import java.lang.management.ManagementFactory
import java.nio.file.{Files, NoSuchFileException, Path}
import java.nio.file.attribute.BasicFileAttributes
import java.util.concurrent.{ConcurrentHashMap, Executors, TimeUnit}

import scala.util.control.NonFatal

import org.apache.hadoop.conf.Configuration

/**
 * The log dir of the checkpoint at the real path `checkpoint`. Partitions are created when they are
 * needed.
 */
final class LogDir private (val checkpoint: Path, @volatile private var settings: Settings) {
  private val directory = checkpoint.resolve(Layout.LogDirName)
  private val locks = new Locks(directory.resolve(Layout.LockName), () => settings.lockTimeoutMs)
  private val identity = locks.identity()
  private val partitions = new ConcurrentHashMap[String, Partition]
  @volatile private var usedNanos = System.nanoTime()
  val runs = new Runs(this, locks, identity)
  val snapshots = new Snapshots(() => settings.flush)

  /**
   * Return whether `path` contains another checkpoint now, because this one was reset or restored.
   */
  def isReplacedAt(path: Path): Boolean =
    try LogDir.identityAt(path) != identity
    catch { case _: NoSuchFileException => false }

  def isGoneFrom(path: Path): Boolean = !Files.exists(LogDir.lockOf(path))

  def partition(name: String): Partition = {
    usedNanos = System.nanoTime()
    partitions.computeIfAbsent(name,
      _ => new Partition(directory.resolve(name), locks, () => settings))
  }

  /** Return the names of the partitions on disk. */
  def names(): Seq[String] = {
    val found = Seq.newBuilder[String]
    val entries = Files.newDirectoryStream(directory)
    try entries.forEach(p => if (Files.isDirectory(p)) found += p.getFileName.toString)
    finally entries.close()
    found.result()
  }

  /** Close all files. A later use opens them again. */
  def rest(): Unit = {
    partitions.values().forEach(_.rest())
    locks.rest(identity)
  }

  /** Close the files of a deleted or unused checkpoint; return whether it was deleted. */
  private def tidy(): Boolean = {
    val isOver = isGoneFrom(checkpoint) || isReplacedAt(checkpoint)
    val isIdle = System.nanoTime() - usedNanos > LogDir.IdleNanos && !runs.isRunning
    if (isOver || isIdle) rest()
    if (isOver) locks.forget(identity)
    isOver
  }

  /**
   * Truncate torn tails once after a reboot. Without a reboot an interrupted write leaves only an
   * incomplete batch; only a power cut leaves complete batches with wrong bytes, which otherwise
   * count as damage. A process without write permission truncates nothing and reads up to the torn
   * batch.
   */
  private def recover(): Unit = if (!locks.isReadOnly) locks.hold(Locks.Directories) {
    val boot = LogDir.bootId()
    val said = locks.text().linesIterator.toSeq
    if (!said.headOption.contains(boot)) {
      names().foreach(name => partition(name).recover(lenient = said.contains(LogDir.Loose)))
      // After the truncation: if recovery fails, the next process must try it again.
      locks.write(s"$boot\n${if (settings.flush.isLoose) LogDir.Loose else LogDir.Strict}\n")
      // Recorded before the first loose write, so that a power cut later is judged by it.
    } else if (settings.flush.isLoose && !said.contains(LogDir.Loose)) {
      locks.write(s"$boot\n${LogDir.Loose}\n")
    }
  }
}

/** The settings of a Spark session for its checkpoints. */
final case class Settings(
    flush: Flush, segmentBytes: Long, lockTimeoutMs: Long, openFiles: Int)

object Settings {
  val SegmentBytesKey = "spark.sparklog.checkpoint.segment.bytes"
  val LockTimeoutKey = "spark.sparklog.checkpoint.lock.timeout.ms"
  val OpenFilesKey = "spark.sparklog.checkpoint.open.files"
  private val cache = new ConcurrentHashMap[(String, Long, Long, Long, Long), Settings]

  /** Return the settings in `conf`. Throws an IllegalArgumentException for an invalid value. */
  def of(conf: Configuration): Settings = cache.computeIfAbsent(
    (conf.get(Flush.Key, "commit"), conf.getLong(Flush.IntervalKey, 1000),
      conf.getLong(SegmentBytesKey, 1L << 30), conf.getLong(LockTimeoutKey, 30000),
      conf.getLong(OpenFilesKey, 0)),
    { case (flush, ms, bytes, timeoutMs, files) =>
      val openFiles = if (files > 0) files.min(Int.MaxValue).toInt else OpenFiles.Default
      Settings(Flush.of(flush, ms), bytes, timeoutMs, openFiles)
    }
  )
}

object LogDir {
  // The second line of the lock file states whether a power cut can lose more than the last write.
  // Both texts have the same length, because one overwrites the other in place.
  private val Strict = "flush=commit"
  private val Loose = "flush=loose "

  private val TidyMs = 10000L
  private val IdleNanos = 60L * 1000 * 1000 * 1000

  private val open = new ConcurrentHashMap[Path, LogDir]

  /**
   * Return the log-backed checkpoint that `path` is or is in, with its log dir; None if there is
   * none.
   */
  def around(path: Path, settings: Settings): Option[(Path, LogDir)] =
    Iterator.iterate(path)(_.getParent).takeWhile(_ != null)
      .find(isCheckpoint)
      .map(root => root -> at(root, settings))

  /** Return whether the host was rebooted since a query last used this lock file. */
  def tellsPowerCut(locks: Locks): Boolean =
    !locks.text().linesIterator.toSeq.headOption.contains(bootId())

  private def lockOf(checkpoint: Path): Path =
    checkpoint.resolve(Layout.LogDirName).resolve(Layout.LockName)

  private def identityAt(checkpoint: Path): AnyRef =
    Files.readAttributes(lockOf(checkpoint), classOf[BasicFileAttributes]).fileKey()

  /**
   * Return whether `path` contains the log dir of a checkpoint. A log in a directory of the same
   * name has a ledger.
   */
  private def isCheckpoint(path: Path): Boolean = {
    val directory = path.resolve(Layout.LogDirName)
    Files.exists(directory.resolve(Layout.LockName)) &&
    (Files.exists(directory.resolve(Layout.Metadata)) ||
      !Files.exists(directory.resolve(Layout.Ledger)))
  }

  /**
   * Create the log dir in `checkpoint` if necessary. Throws an IOException if a log is stored
   * there.
   */
  def create(checkpoint: Path, settings: Settings): LogDir = {
    val lock = lockOf(checkpoint)
    if (Files.exists(lock) && !isCheckpoint(checkpoint)) throw new java.io.IOException(
      s"${lock.getParent} contains a log, but this checkpoint needs that directory: set another " +
        "checkpointLocation for the query, or move the log to another directory")
    if (!Files.exists(lock)) {
      Durable.createDirectory(lock.getParent)
      try Files.createFile(lock)
      catch { case _: java.nio.file.FileAlreadyExistsException => } // another thread was first
      Durable.sync(lock.getParent)
    }
    at(checkpoint, settings)
  }

  /** Return the LogDir of a directory; all paths to the directory return the same object. */
  private def at(path: Path, settings: Settings): LogDir = {
    tidying
    open.compute(
      // Two objects for one directory would not know of each other's open files.
      path.toRealPath(),
      (checkpoint, known) => {
        val stands =
          known != null && !known.isGoneFrom(checkpoint) && !known.isReplacedAt(checkpoint)
        val logDir = if (stands) known else new LogDir(checkpoint, settings)
        if ((logDir ne known) || logDir.settings != settings) {
          if (!stands && known != null) known.tidy()
          logDir.settings = settings
          logDir.recover()
        }
        logDir
      }
    )
  }

  private lazy val tidying = {
    val all: Runnable = () =>
      open.keySet().forEach { path =>
        open.computeIfPresent(path, (_, logDir) => if (tidied(logDir)) null else logDir)
      }
    Executors.newSingleThreadScheduledExecutor(Daemons.named("sparklog-checkpoint-tidy"))
      .scheduleWithFixedDelay(all, TidyMs, TidyMs, TimeUnit.MILLISECONDS)
  }

  private def tidied(logDir: LogDir): Boolean =
    try logDir.tidy()
    catch { case NonFatal(_) => false }

  /**
   * Return Linux's id of the current boot. On other systems every start of a JVM counts as a boot.
   */
  private def bootId(): String = {
    val file = Path.of("/proc/sys/kernel/random/boot_id")
    if (Files.isReadable(file)) Files.readString(file).trim
    else s"jvm-${ManagementFactory.getRuntimeMXBean.getName}"
  }
}
