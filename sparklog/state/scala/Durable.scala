package sparklog.checkpoint

import java.nio.channels.FileChannel
import java.nio.file.{Files, Path, StandardCopyOption, StandardOpenOption}
import java.util.concurrent.{ConcurrentHashMap, Executors, ScheduledExecutorService, TimeUnit}

/** File operations that outlast a power cut. */
object Durable {
  def sync(path: Path): Unit = {
    val channel = FileChannel.open(path, StandardOpenOption.READ)
    try channel.force(true) finally channel.close()
  }

  /** Replace a small file whole. */
  def write(path: Path, content: Array[Byte]): Unit = {
    val next = path.resolveSibling(s"${path.getFileName}.tmp")
    Files.write(next, content)
    sync(next)
    rename(next, path)
  }

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
  }

  private final class ByInterval(ms: Long) extends Flush {
    val isLoose = true
    private val waiting = ConcurrentHashMap.newKeySet[FileChannel]()

    def written(channel: FileChannel): Unit = if (waiting.add(channel)) {
      timer.schedule((() => sync(channel)): Runnable, ms, TimeUnit.MILLISECONDS)
    }

    private def sync(channel: FileChannel): Unit = {
      waiting.remove(channel)
      try channel.force(false)
      catch { case _: java.nio.channels.ClosedChannelException => } // cleaned, and synced by that
    }
  }

  private lazy val timer: ScheduledExecutorService =
    Executors.newSingleThreadScheduledExecutor(Daemons.named("sparklog-checkpoint-flush"))
}
