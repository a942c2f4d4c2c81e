package sparklog.checkpoint

import java.io.IOException
import java.nio.channels.FileLock
import java.nio.charset.StandardCharsets.UTF_8
import java.util.concurrent.{Executors, TimeUnit}

import scala.util.control.NonFatal

import org.apache.spark.TaskContext
import org.apache.spark.sql.SparkSession

/**
 * Which run of the query owns a checkpoint. A run is what Spark calls runId, the job group of the
 * query's thread and of its tasks. Each run is written down before its first batch; from then on
 * drivers and tasks of the runs before it, which may have been paused or cut off, write no more.
 */
final class Runs(logDir: LogDir, locks: Locks) {
  import Runs._

  @volatile private var held: Option[(String, FileLock)] = None

  /** Refuse a caller whose run another one has taken over from. */
  def check(caller: Caller): Unit = caller.run.foreach { run =>
    val known = written()
    if (known.drop(1).contains(run)) throw new IOException(
      s"run $run of the query with checkpoint ${logDir.checkpoint} has ended: run ${known.head} " +
        "has taken over. This write is refused; nothing is lost, the task belongs to the old run")
  }

  /** A driver starts with the checkpoint, or plans a batch: the run is now the checkpoint's. */
  def begin(caller: Caller): Unit = caller.run.foreach { run =>
    if (!held.exists(_._1 == run)) synchronized {
      takeLock(run, caller.thread)
      val known = written()
      if (!known.headOption.contains(run)) {
        val text = (run +: known.filterNot(_ == run)).take(Remembered).mkString("\n")
        val bytes = text.getBytes(UTF_8)
        logDir.partition(Metadata).put(Key, bytes, bytes.length, overwrite = true)
      }
    }
  }

  private def takeLock(run: String, thread: Thread): Unit = {
    val lock = held.map(_._2).orElse(locks.take(Locks.Running)).getOrElse(throw new IOException(
      s"the query with checkpoint ${logDir.checkpoint} runs in another process (or a reset of it " +
        "is under way): stop it first, or give this query a checkpoint of its own by " +
        "sparklog.checkpoint.fork"))
    held = Some(run -> lock)
    watch { () =>
      val ended = !held.exists(_._1 == run) || !thread.isAlive
      if (ended) release(run)
      ended
    }
  }

  private def release(run: String): Unit = synchronized {
    held.filter(_._1 == run).foreach { case (_, lock) =>
      held = None
      lock.release()
    }
  }

  private def written(): Seq[String] = logDir.partition(Metadata).read(Key) match {
    case Some(text) => UTF_8.decode(text).toString.linesIterator.toSeq
    case None => Nil
  }
}

/** Who calls: a thread, and the run of a query that it works for; in the driver that query's id. */
final case class Caller(run: Option[String], query: Option[String], thread: Thread)

object Caller {
  private val Group = "spark.jobGroup.id"
  private val QueryId = "sql.streaming.queryId" // StreamExecution.QUERY_ID_KEY
  private val RunId = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"

  /** The calling thread's; without a run outside of streaming queries. */
  def current(): Caller = {
    val task = Option(TaskContext.get())
    val driver = if (task.isEmpty) SparkSession.getActiveSession.map(_.sparkContext) else None
    val group = task.map(_.getLocalProperty(Group)).orElse(driver.map(_.getLocalProperty(Group)))
    val query = driver.flatMap(c => Option(c.getLocalProperty(QueryId)))
    Caller(group.filter(g => g != null && g.matches(RunId)), query, Thread.currentThread())
  }
}

object Runs {
  val Key = "sparklog.runs"
  private val Metadata = "metadata-0"
  private val Remembered = 32
  private val EveryMs = 200L

  /** Call `ended` now and then until it says so. */
  private def watch(ended: () => Boolean): Unit = {
    val again: Runnable = () =>
      if (!(try ended() catch { case NonFatal(_) => true })) watch(ended)
    timer.schedule(again, EveryMs, TimeUnit.MILLISECONDS)
  }

  private lazy val timer =
    Executors.newSingleThreadScheduledExecutor(Daemons.named("sparklog-checkpoint-runs"))
}
