package sparklog.source

import java.io.InterruptedIOException

import org.apache.spark.{TaskContext, TaskKilledException}

/** Whether somebody wants the task to end: then it ends, and nobody goes on in its place. */
private[source] object Interrupts {
  /** TaskKilledException, or InterruptedIOException where no task runs. */
  def check(): Unit = {
    val context = TaskContext.get()
    if (context != null && context.isInterrupted()) {
      throw new TaskKilledException // the executor knows why
    }
    if (Thread.currentThread.isInterrupted) {
      throw new InterruptedIOException("interrupted while a log was read")
    }
  }
}
