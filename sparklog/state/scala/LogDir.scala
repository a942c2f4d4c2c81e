package sparklog.checkpoint

import java.lang.management.ManagementFactory
import java.nio.file.{Files, NoSuchFileException, Path}
import java.util.concurrent.ConcurrentHashMap

import org.apache.hadoop.conf.Configuration

/** The log dir of a checkpoint: its partitions, made as they are needed. */
final class LogDir private (val checkpoint: Path, @volatile private var settings: Settings) {
  private val directory = checkpoint.resolve(Layout.LogDirName)
  private val locks = new Locks(directory.resolve(Layout.LockName), () => settings.lockTimeoutMs)
  private val identity = locks.identity()
  private val partitions = new ConcurrentHashMap[String, Partition]
  val runs = new Runs(this, locks)

  /** The checkpoint that lies here is another one by now: this one was reset, or restored. */
  def isReplaced: Boolean =
    try locks.identity() != identity catch { case _: NoSuchFileException => false }

  def isGone: Boolean = !Files.exists(directory.resolve(Layout.LockName))

  def partition(name: String): Partition = partitions.computeIfAbsent(name, _ =>
    new Partition(directory.resolve(name), locks, () => settings))

  /** Names of the partitions on disk. */
  def names(): Seq[String] = {
    val found = Seq.newBuilder[String]
    val entries = Files.newDirectoryStream(directory)
    try entries.forEach(p => if (Files.isDirectory(p)) found += p.getFileName.toString)
    finally entries.close()
    found.result()
  }

  /**
   * After a reboot cut what it tore, once, whoever comes first. In one boot a write that was cut off
   * leaves too few bytes; only a power cut leaves wrong ones, and then damage needn't be a fault.
   */
  private def recover(): Unit = locks.hold(Locks.Directories) {
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

/** What a session's settings say about checkpoints. */
final case class Settings(flush: Flush, segmentBytes: Long, lockTimeoutMs: Long)

object Settings {
  val SegmentBytesKey = "spark.sparklog.checkpoint.segment.bytes"
  val LockTimeoutKey = "spark.sparklog.checkpoint.lock.timeout.ms"
  private val cache = new ConcurrentHashMap[(String, Long, Long, Long), Settings]

  /** IllegalArgumentException for a value that isn't one. */
  def of(conf: Configuration): Settings = cache.computeIfAbsent(
    (conf.get(Flush.Key, "commit"), conf.getLong(Flush.IntervalKey, 1000),
      conf.getLong(SegmentBytesKey, 1L << 30), conf.getLong(LockTimeoutKey, 30000)),
    { case (flush, ms, bytes, timeoutMs) => Settings(Flush.of(flush, ms), bytes, timeoutMs) })
}

object LogDir {
  // The lock file's second line: whether a power cut may have lost more than the last write.
  private val Strict = "flush=commit"
  private val Loose = "flush=loose "

  private val open = new ConcurrentHashMap[Path, LogDir]

  /** The log dir of the checkpoint that `path` is or lies in; None outside of one. */
  def around(path: Path, settings: Settings): Option[LogDir] =
    Iterator.iterate(path)(_.getParent).takeWhile(_ != null)
      .find(isCheckpoint)
      .map(at(_, settings))

  /** Whether `path` has a checkpoint's log dir; a log that happens to have its name has a ledger. */
  private def isCheckpoint(path: Path): Boolean = {
    val directory = path.resolve(Layout.LogDirName)
    Files.exists(directory.resolve(Layout.LockName)) &&
      (Files.exists(directory.resolve(Layout.Metadata)) ||
        !Files.exists(directory.resolve(Layout.Ledger)))
  }

  /** Make `checkpoint` one with a log dir, if it isn't yet. */
  def create(checkpoint: Path, settings: Settings): LogDir = {
    val lock = checkpoint.resolve(Layout.LogDirName).resolve(Layout.LockName)
    if (!Files.exists(lock)) {
      Durable.createDirectory(lock.getParent)
      try Files.createFile(lock)
      catch { case _: java.nio.file.FileAlreadyExistsException => } // another thread was first
      Durable.sync(lock.getParent)
    }
    at(checkpoint, settings)
  }

  private def at(checkpoint: Path, settings: Settings): LogDir =
    open.compute(checkpoint, (_, known) => {
      val stands = known != null && !known.isGone && !known.isReplaced
      val logDir = if (stands) known else new LogDir(checkpoint, settings)
      if ((logDir ne known) || logDir.settings != settings) {
        logDir.settings = settings
        logDir.recover()
      }
      logDir
    })

  /** Linux's id of this boot; without one every start of a JVM counts as a boot. */
  private def bootId(): String = {
    val file = Path.of("/proc/sys/kernel/random/boot_id")
    if (Files.isReadable(file)) Files.readString(file).trim
    else s"jvm-${ManagementFactory.getRuntimeMXBean.getName}"
  }
}
