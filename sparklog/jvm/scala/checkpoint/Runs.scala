package sparklog.checkpoint

import java.io.IOException
import java.nio.ByteBuffer
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.Files

import scala.util.control.NonFatal

import org.apache.spark.TaskContext
import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.StartedQuery

/**
 * Determines which run of the query owns a checkpoint. A run is identified by Spark's runId. Each
 * run is recorded before its first batch. From then on, drivers and tasks of earlier runs, which
 * may have been paused or disconnected, can't write any more.
 */
final class Runs(logDir: LogDir, locks: Locks, identity: AnyRef) extends Logging {
  import Runs._

  @volatile private var held: Option[String] = None

  def isRunning: Boolean = held.isDefined

  /**
   * Reject a caller whose run was superseded; a caller without a run is checked by its driver's.
   */
  def check(caller: Caller): Unit = caller.run.orElse(held).foreach { run =>
    val known = written()
    if (known.drop(1).contains(run)) throw new IOException(
      s"run $run of the query with checkpoint ${logDir.checkpoint} has ended: run ${known.head} " +
        "has taken over. This write is refused; nothing is lost, the task belongs to the old run")
  }

  /**
   * Make the caller's run the owner. Called when a driver starts with the checkpoint, or plans a
   * batch.
   */
  def begin(caller: Caller): Unit = for (run <- caller.run if caller.query.isDefined) {
    if (!held.contains(run)) synchronized {
      takeLock(run, caller.thread)
      checkSinkFollowed()
      MetadataMarker.settle(logDir)
      val known = written()
      if (!known.headOption.contains(run)) {
        val text = (run +: known.filterNot(_ == run)).take(Remembered).mkString("\n")
        val bytes = text.getBytes(UTF_8)
        logDir.partition(Layout.Metadata).put(Key, bytes, bytes.length, overwrite = true)
      }
      caller.query.foreach(noteQuery)
      held = Some(run)
    }
  }

  /** A reset of the checkpoint is complete only when the file sink's log was reset too. */
  private def checkSinkFollowed(): Unit = {
    val note = logDir.checkpoint.resolve(ResetNote)
    if (Files.exists(note) && Files.readString(note).contains(OutputField)) throw new IOException(
      s"${logDir.checkpoint} was reset, and the _spark_metadata of its file sink has yet to " +
        s"follow, as $note says. Finish the reset, with the query stopped, by running the same " +
        "`sparklog checkpoint reset` once more")
  }

  /** Store the query's name and its sink, which Spark's own files don't contain. */
  private def noteQuery(id: String): Unit = {
    val text =
      try StartedQuery.describe(id)
      catch {
        case NonFatal(e) =>
          logWarning(s"the sink of query $id isn't noted in ${logDir.checkpoint}", e)
          None
      }
    for (text <- text) {
      val bytes = text.getBytes(UTF_8)
      val partition = logDir.partition(Layout.Metadata)
      if (!partition.read(QueryKey).contains(ByteBuffer.wrap(bytes))) {
        partition.put(QueryKey, bytes, bytes.length, overwrite = true)
      }
    }
  }

  /**
   * Take the lock. The previous driver may be about to end and to release it with its query's
   * thread.
   */
  private def takeLock(run: String, thread: Thread): Unit = {
    val end = System.nanoTime() + WaitMs * 1000000
    while (!locks.take(Locks.Running, run)) {
      if (System.nanoTime() > end) throw new IOException(
        s"the query with checkpoint ${logDir.checkpoint} runs in another process (or a reset of " +
          "it is under way): stop it first, or give this query a checkpoint of its own by " +
          "sparklog.checkpoint.fork")
      Thread.sleep(PauseMs)
    }
    val release: Runnable = () => {
      thread.join()
      ended(run)
    }
    Daemons.named("sparklog-checkpoint-run").newThread(release).start()
  }

  private def ended(run: String): Unit = {
    locks.giveBack(Locks.Running, run, identity)
    val isOver = synchronized {
      val wasOurs = held.contains(run)
      if (wasOurs) held = None
      wasOurs
    }
    if (isOver) logDir.rest()
  }

  private def written(): Seq[String] = logDir.partition(Layout.Metadata).read(Key) match {
    case Some(text) => UTF_8.decode(text).toString.linesIterator.toSeq
    case None => Nil
  }
}

object Runs {
  val Key = "sparklog.runs"
  /** The key of the query's name and sink, read by sparklog/checkpoint/query_sink.py. */
  private val QueryKey = "sparklog.query"
  /** The key that sparklog/checkpoint/unfinished_reset.py writes. */
  private val ResetNote = "sparklog.reset"
  private val OutputField = "\"output\""
  private val Remembered = 32
  private val WaitMs = 5000L
  private val PauseMs = 10L
}

/** The calling thread, and the run of its query; in the driver also the query's id. */
final case class Caller(run: Option[String], query: Option[String], thread: Thread)

object Caller {
  private val Id = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
  /** The name of StreamExecution's thread. */
  private val Driver = s"(?s)stream execution thread for .*\\[id = ($Id), runId = ($Id)\\]".r

  /**
   * The conf in which Spark passes the run to a state store's provider: StreamExecution.RUN_ID_KEY.
   */
  val RunIdKey = "sql.streaming.runId"

  /**
   * The calling thread: the query's own in the driver, or a task's, whose state store belongs to
   * the run `ofStore`. No run outside of streaming queries. The job group also names the run, but
   * users can change it, also within foreachBatch.
   */
  def current(ofStore: Option[String]): Caller = {
    val thread = Thread.currentThread()
    if (TaskContext.get() != null) Caller(ofStore, None, thread)
    else thread.getName match {
      case Driver(query, run) => Caller(Some(run), Some(query), thread)
      case _ => Caller(None, None, thread)
    }
  }
}
