package sparklog.checkpoint

import java.io.IOException
import java.nio.ByteBuffer
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.Files

import org.apache.spark.TaskContext
import org.apache.spark.internal.Logging

/**
 * Determines which run of the query owns a checkpoint. A run is identified by Spark's runId and is
 * recorded before its first batch. From then on, drivers and tasks of earlier runs, which may have
 * been paused or disconnected, can't write any more.
 */
final class Runs(logDir: LogDir, locks: Locks, identity: AnyRef) extends Logging {
  import Runs._

  @volatile private var held: Option[String] = None

  def isRunning: Boolean = held.isDefined

  /**
   * Throw an IOException if the caller's run was superseded. A caller without a run counts as part
   * of the driver's run in this JVM.
   */
  def check(caller: Caller): Unit = caller.run.orElse(held).foreach { run =>
    val known = written()
    if (known.drop(1).contains(run)) throw new IOException(
      s"${logDir.checkpoint}: run $run of the query has ended, and run ${known.head} has taken " +
        "over. This write of the old run is refused; no data are lost")
  }

  /**
   * Make the caller's run the owner of the checkpoint. Called when a driver starts with the
   * checkpoint, and when a driver plans a batch.
   */
  def begin(caller: Caller): Unit = for (run <- caller.run if caller.query.isDefined) {
    if (!held.contains(run)) synchronized {
      // The lock comes first: the following steps change files, which another driver may be using.
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

  /**
   * Throw an IOException if the checkpoint was reset, but its file sink's log was not reset yet.
   */
  private def checkSinkFollowed(): Unit = {
    val note = logDir.checkpoint.resolve(ResetNote.Name)
    if (Files.exists(note)) ResetNote.check(logDir.checkpoint.toString, Files.readString(note))
  }

  /**
   * Store the name and the sink of the query as a record, because the files that Spark writes don't
   * contain them.
   */
  private def noteQuery(id: String): Unit = {
    for (bytes <- QueryNote.of(id, logDir.checkpoint.toString)) {
      val partition = logDir.partition(Layout.Metadata)
      if (!partition.read(QueryNote.Key).contains(ByteBuffer.wrap(bytes))) {
        partition.put(QueryNote.Key, bytes, bytes.length, overwrite = true)
      }
    }
  }

  /**
   * Take the lock of the running query. Waits some seconds, because the thread of the previous run
   * may be about to end and to release the lock.
   */
  private def takeLock(run: String, thread: Thread): Unit = {
    val end = System.nanoTime() + WaitMs * 1000000
    while (!locks.take(Locks.Running, run)) {
      if (System.nanoTime() > end) throw new IOException(
        s"the query with checkpoint ${logDir.checkpoint} runs in another process, or the " +
          "checkpoint is being reset. Stop the other query first, or create a separate " +
          "checkpoint for this query with sparklog.checkpoint.fork")
      Thread.sleep(PauseMs)
    }
    Daemons.after(thread, "sparklog-checkpoint-run")(ended(run))
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
  private val Remembered = 32
  private val WaitMs = 5000L
  private val PauseMs = 10L
}

/** The calling thread and the run id of its query. In the driver, also the id of the query. */
final case class Caller(run: Option[String], query: Option[String], thread: Thread)

object Caller {
  private val Id = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
  /** The name that StreamExecution gives to the thread of a query in the driver. */
  private val Driver = s"(?s)stream execution thread for .*\\[id = ($Id), runId = ($Id)\\]".r

  /**
   * The conf in which Spark passes the run id to a state store provider:
   * StreamExecution.RUN_ID_KEY.
   */
  val RunIdKey = "sql.streaming.runId"

  /**
   * Describe the calling thread: in the driver the thread of a query, or a task, whose state store
   * belongs to the run `ofStore`. Threads outside of streaming queries have no run.
   */
  def current(ofStore: Option[String]): Caller = {
    val thread = Thread.currentThread()
    // The job group names the run too, but users can change it, also within foreachBatch.
    if (TaskContext.get() != null) Caller(ofStore, None, thread)
    else thread.getName match {
      case Driver(query, run) => Caller(Some(run), Some(query), thread)
      case _ => Caller(None, None, thread)
    }
  }
}
