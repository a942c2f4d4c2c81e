package sparklog.checkpoint

import java.nio.channels.FileChannel
import java.nio.file.{Files, Path, StandardCopyOption, StandardOpenOption}
import java.util.concurrent.{ConcurrentHashMap, Executors, ScheduledExecutorService, TimeUnit}

/** File operations that outlast a power cut. */
object Durable {
  def sync(path: Path): Unit = {
    val channel = FileChannel.open(path, StandardOpenOption.READ)
    try channel.force(true)
    finally channel.close()
  }

  /** Replace a small file whole; what a crash leaves of it lies at `next`, beside it. */
  def write(path: Path, content: Array[Byte], next: Path): Unit = {
    Files.write(next, content)
    sync(next)
    rename(next, path)
  }

  /**
   * Sync a file that Spark's own manager wrote, with Hadoop's checksum of it, if they are there.
   */
  def syncWritten(file: Path): Unit =
    Seq(file, file.resolveSibling(s".${file.getFileName}.crc")).filter(Files.exists(_)).foreach(
      sync)

  def rename(from: Path, to: Path): Unit = {
    Files.move(from, to, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING)
    sync(to.getParent)
  }

  def createDirectory(path: Path): Unit = if (!Files.isDirectory(path)) {
    createDirectory(path.getParent)
    Files.createDirectories(path)
    sync(path.getParent)
  }
}

/** When what was written is synced. */
sealed trait Flush {
  /** What a power cut may leave isn't only one torn batch at the end. */
  def isLoose: Boolean
  def written(channel: FileChannel): Unit
  /** The channel is about to be closed, with its file as it is. */
  def closing(channel: FileChannel): Unit = ()
  /** Whether files that Spark wrote, which no record tells of, are synced as well. */
  def syncsFiles: Boolean = true
}

object Flush {
  val Key = "spark.sparklog.checkpoint.flush"
  val IntervalKey = "spark.sparklog.checkpoint.flush.ms"

  /** `flush`: commit, interval or none, as the option says. IllegalArgumentException for others. */
  def of(flush: String, intervalMs: Long): Flush = flush match {
    case "commit" => OnCommit
    case "interval" => new ByInterval(intervalMs)
    case "none" => Never
    case other => throw new IllegalArgumentException(
        s"$Key is $other: use commit (each write is synced), interval (every $IntervalKey) or none")
  }

  private object OnCommit extends Flush {
    val isLoose = false
    def written(channel: FileChannel): Unit = channel.force(false)
  }

  private object Never extends Flush {
    val isLoose = true
    def written(channel: FileChannel): Unit = ()
    override def syncsFiles: Boolean = false
  }

  private final class ByInterval(ms: Long) extends Flush {
    val isLoose = true
    private val waiting = ConcurrentHashMap.newKeySet[FileChannel]()

    def written(channel: FileChannel): Unit = if (waiting.add(channel)) {
      timer.schedule((() => sync(channel)): Runnable, ms, TimeUnit.MILLISECONDS)
    }

    override def closing(channel: FileChannel): Unit =
      if (waiting.remove(channel)) channel.force(false)

    private def sync(channel: FileChannel): Unit = if (waiting.remove(channel)) {
      try channel.force(false)
      catch { case _: java.nio.channels.ClosedChannelException => } // cleaned, and synced by that
    }
  }

  private lazy val timer: ScheduledExecutorService =
    Executors.newSingleThreadScheduledExecutor(Daemons.named("sparklog-checkpoint-flush"))
}
