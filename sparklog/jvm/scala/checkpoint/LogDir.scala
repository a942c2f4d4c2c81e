package sparklog.checkpoint

import java.lang.management.ManagementFactory
import java.nio.file.{Files, NoSuchFileException, Path}
import java.nio.file.attribute.BasicFileAttributes
import java.util.concurrent.{ConcurrentHashMap, Executors, TimeUnit}

import scala.util.control.NonFatal

import org.apache.hadoop.conf.Configuration

/** The log dir of the checkpoint at a path without links. Partitions are created as needed. */
final class LogDir private (val checkpoint: Path, @volatile private var settings: Settings) {
  private val directory = checkpoint.resolve(Layout.LogDirName)
  private val locks = new Locks(directory.resolve(Layout.LockName), () => settings.lockTimeoutMs)
  private val identity = locks.identity()
  private val partitions = new ConcurrentHashMap[String, Partition]
  @volatile private var usedNanos = System.nanoTime()
  val runs = new Runs(this, locks, identity)
  val snapshots = new Snapshots(() => settings.flush)

  /** Whether another checkpoint is at `path` now, because this one was reset or restored. */
  def isReplacedAt(path: Path): Boolean =
    try LogDir.identityAt(path) != identity
    catch { case _: NoSuchFileException => false }

  def isGoneFrom(path: Path): Boolean = !Files.exists(LogDir.lockOf(path))

  def partition(name: String): Partition = {
    usedNanos = System.nanoTime()
    partitions.computeIfAbsent(name,
      _ => new Partition(directory.resolve(name), locks, () => settings))
  }

  /** Names of the partitions on disk. */
  def names(): Seq[String] = {
    val found = Seq.newBuilder[String]
    val entries = Files.newDirectoryStream(directory)
    try entries.forEach(p => if (Files.isDirectory(p)) found += p.getFileName.toString)
    finally entries.close()
    found.result()
  }

  /** Close all files; they are opened again when needed. */
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
   * Truncate torn tails, once after a reboot. Without a reboot, an interrupted write leaves an
   * incomplete batch; only a power cut leaves wrong bytes, and only then is damage not an error.
   * Readers without write permission truncate nothing, and read up to the torn batch.
   */
  private def recover(): Unit = if (!locks.isReadOnly) locks.hold(Locks.Directories) {
    val boot = LogDir.bootId()
    val said = locks.text().linesIterator.toSeq
    if (!said.headOption.contains(boot)) {
      names().foreach(name => partition(name).recover(lenient = said.contains(LogDir.Loose)))
      locks.write(s"$boot\n${if (settings.flush.isLoose) LogDir.Loose else LogDir.Strict}\n")
    } else if (settings.flush.isLoose && !said.contains(LogDir.Loose)) {
      locks.write(s"$boot\n${LogDir.Loose}\n")
    }
  }
}

/** A session's settings for checkpoints. */
final case class Settings(
    flush: Flush, segmentBytes: Long, lockTimeoutMs: Long, openFiles: Int)

object Settings {
  val SegmentBytesKey = "spark.sparklog.checkpoint.segment.bytes"
  val LockTimeoutKey = "spark.sparklog.checkpoint.lock.timeout.ms"
  val OpenFilesKey = "spark.sparklog.checkpoint.open.files"
  private val cache = new ConcurrentHashMap[(String, Long, Long, Long, Long), Settings]

  /** Parse the settings. An IllegalArgumentException for an invalid value. */
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
  // The lock file's second line: whether a power cut can lose more than the last write.
  private val Strict = "flush=commit"
  private val Loose = "flush=loose "

  private val TidyMs = 10000L
  private val IdleNanos = 60L * 1000 * 1000 * 1000

  private val open = new ConcurrentHashMap[Path, LogDir]

  /** The checkpoint at or around `path`, and its log dir; None outside of a checkpoint. */
  def around(path: Path, settings: Settings): Option[(Path, LogDir)] =
    Iterator.iterate(path)(_.getParent).takeWhile(_ != null)
      .find(isCheckpoint)
      .map(root => root -> at(root, settings))

  /** Whether the machine was rebooted since the last query that used this lock file. */
  def tellsPowerCut(locks: Locks): Boolean =
    !locks.text().linesIterator.toSeq.headOption.contains(bootId())

  private def lockOf(checkpoint: Path): Path =
    checkpoint.resolve(Layout.LogDirName).resolve(Layout.LockName)

  private def identityAt(checkpoint: Path): AnyRef =
    Files.readAttributes(lockOf(checkpoint), classOf[BasicFileAttributes]).fileKey()

  /** Whether `path` contains a checkpoint's log dir. A log with the same name has a ledger. */
  private def isCheckpoint(path: Path): Boolean = {
    val directory = path.resolve(Layout.LogDirName)
    Files.exists(directory.resolve(Layout.LockName)) &&
    (Files.exists(directory.resolve(Layout.Metadata)) ||
      !Files.exists(directory.resolve(Layout.Ledger)))
  }

  /** Create the log dir in `checkpoint` if necessary. An IOException if a log is there. */
  def create(checkpoint: Path, settings: Settings): LogDir = {
    val lock = lockOf(checkpoint)
    if (Files.exists(lock) && !isCheckpoint(checkpoint)) throw new java.io.IOException(
      s"a log lies at ${lock.getParent}, where this checkpoint's own would: give the query " +
        "another checkpointLocation, or the log another directory")
    if (!Files.exists(lock)) {
      Durable.createDirectory(lock.getParent)
      try Files.createFile(lock)
      catch { case _: java.nio.file.FileAlreadyExistsException => } // another thread was first
      Durable.sync(lock.getParent)
    }
    at(checkpoint, settings)
  }

  /** The LogDir of a directory, the same for all of its names. */
  private def at(path: Path, settings: Settings): LogDir = {
    tidying
    open.compute(
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

  /** Linux's id of this boot; without one, every start of a JVM counts as a boot. */
  private def bootId(): String = {
    val file = Path.of("/proc/sys/kernel/random/boot_id")
    if (Files.isReadable(file)) Files.readString(file).trim
    else s"jvm-${ManagementFactory.getRuntimeMXBean.getName}"
  }
}
