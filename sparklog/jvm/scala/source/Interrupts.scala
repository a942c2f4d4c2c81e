package sparklog.source

import java.io.InterruptedIOException

import org.apache.spark.{TaskContext, TaskKilledException}

/**
 * Checks whether the task was interrupted. An interrupted task ends; Python must not continue the
 * read then.
 */
private[source] object Interrupts {
  /**
   * Throw a TaskKilledException if the task was interrupted; outside of a task an
   * InterruptedIOException.
   */
  def check(): Unit = {
    val context = TaskContext.get()
    if (context != null && context.isInterrupted()) {
      throw new TaskKilledException // the executor knows why
    }
    if (Thread.currentThread.isInterrupted) {
      throw new InterruptedIOException("the thread was interrupted while it read a log")
    }
  }
}
