package sparklog.checkpoint

import java.nio.channels.FileChannel
import java.nio.file.{Files, Path, StandardCopyOption, StandardOpenOption}
import java.util.concurrent.{ConcurrentHashMap, Executors, ScheduledExecutorService, TimeUnit}

/** File operations that survive a power cut. */
object Durable {
  def sync(path: Path): Unit = {
    val channel = FileChannel.open(path, StandardOpenOption.READ)
    try channel.force(true)
    finally channel.close()
  }

  /** Replace a small file atomically. A crash leaves at most the temporary file `next` behind. */
  def write(path: Path, content: Array[Byte], next: Path): Unit = {
    Files.write(next, content)
    sync(next)
    rename(next, path)
  }

  /** Sync a file that Spark's own manager wrote, and Hadoop's checksum of it, if they exist. */
  def syncWritten(file: Path): Unit =
    Seq(file, file.resolveSibling(s".${file.getFileName}.crc")).filter(Files.exists(_)).foreach(
      sync)

  def rename(from: Path, to: Path): Unit = {
    // A rename survives a power cut only after a sync of the directory.
    Files.move(from, to, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING)
    sync(to.getParent)
  }

  def createDirectory(path: Path): Unit = if (!Files.isDirectory(path)) {
    createDirectory(path.getParent)
    Files.createDirectories(path)
    sync(path.getParent)
  }
}

/** When data written to a segment are synced to disk. */
sealed trait Flush {
  /** Whether a power cut can lose more than the last batch. */
  def isLoose: Boolean
  def written(channel: FileChannel): Unit
  /** Called before the channel is closed. */
  def closing(channel: FileChannel): Unit = ()
  /** Whether files that Spark wrote, without a record, are synced too. */
  def syncsFiles: Boolean = true
}

object Flush {
  val Key = "spark.sparklog.checkpoint.flush"
  val IntervalKey = "spark.sparklog.checkpoint.flush.ms"

  /**
   * Return the policy for the conf `spark.sparklog.checkpoint.flush`: commit, interval or none.
   * Throws an IllegalArgumentException for other values.
   */
  def of(flush: String, intervalMs: Long): Flush = flush match {
    case "commit" => OnCommit
    case "interval" => new ByInterval(intervalMs)
    case "none" => Never
    case other => throw new IllegalArgumentException(
        s"$Key must be commit (sync each write), interval (sync every $IntervalKey) or none; got " +
          other)
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
      catch {
        case _: java.nio.channels.ClosedChannelException =>
      } // closed by a cleaning, which synced the data before
    }
  }

  private lazy val timer: ScheduledExecutorService =
    Executors.newSingleThreadScheduledExecutor(Daemons.named("sparklog-checkpoint-flush"))
}
