package sparklog.checkpoint.stored

import java.util.concurrent.{Callable, ExecutionException, Executors}

import scala.jdk.CollectionConverters._

import sparklog.checkpoint.Daemons

/** Requests to a store, several at once. */
private[stored] object Fetches {
  private val Threads = 16
  private val threads = Executors.newFixedThreadPool(Threads, Daemons.named("sparklog-fetch"))

  /** Return the results in order. Throws what one of the requests threw. */
  def all[T](requests: Seq[() => T]): Seq[T] =
    if (requests.size == 1) Seq(requests.head())
    else {
      val calls = requests.map(r => (() => r()): Callable[T])
      val running = threads.invokeAll(calls.asJava).asScala.toSeq
      try running.map(_.get())
      catch { case e: ExecutionException => throw e.getCause }
    }
}
