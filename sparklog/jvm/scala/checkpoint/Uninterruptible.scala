package sparklog.checkpoint

import java.util.concurrent.{Callable, ExecutionException, Executors, Future, ThreadFactory}

/**
 * Runs file operations in threads that are never interrupted. Spark interrupts the threads of
 * queries and tasks that it stops. The JVM then closes the channel that such a thread is using, for
 * all threads, and closing the lock file's channel releases all locks of the process.
 */
object Uninterruptible {
  private val threads = Executors.newCachedThreadPool(Daemons.named("sparklog-checkpoint"))

  /** Run `body` to its end. Return its result or throw its exception. */
  def apply[T](body: => T): T = {
    val call: Callable[T] = () => body
    val running = threads.submit(call)
    var interrupted = false
    try {
      var result: Option[T] = None
      while (result.isEmpty) {
        try result = Some(get(running))
        catch { case _: InterruptedException => interrupted = true }
      }
      result.get
    } finally if (interrupted) Thread.currentThread().interrupt()
  }

  private def get[T](running: Future[T]): T =
    try running.get()
    catch {
      case e: ExecutionException =>
        e.getCause.addSuppressed(new Throwable("the operation was requested by this thread"))
        throw e.getCause
    }
}

/** Threads that don't keep the JVM running. */
object Daemons {
  def named(name: String): ThreadFactory = { (task: Runnable) =>
    val thread = new Thread(task, name)
    thread.setDaemon(true)
    thread
  }

  /** Run `body` in a thread of that name when `thread` has ended. */
  def after(thread: Thread, name: String)(body: => Unit): Unit = {
    val waiting: Runnable = () => {
      thread.join()
      body
    }
    named(name).newThread(waiting).start()
  }
}
