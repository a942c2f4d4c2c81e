package sparklog.source

import java.io.InterruptedIOException

import org.apache.spark.{TaskContext, TaskKilledException}

/** Checks whether the task was interrupted: it then ends, and Python does not take over. */
private[source] object Interrupts {
  /** TaskKilledException, or InterruptedIOException outside of a task. */
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
