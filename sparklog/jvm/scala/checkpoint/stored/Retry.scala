package sparklog.checkpoint.stored

import java.io.{FileNotFoundException, IOException}
import java.nio.file.AccessDeniedException

/** Repeats a request whose answer is lost, for a limited time. */
private[stored] final class Retry(settings: LedgerSettings) {
  private val end = System.nanoTime() + settings.giveUpMs.min(Retry.MaxMs) * 1000000
  private var pauseMs = settings.pauseMs

  /** Return the answer, or None after a pause. Throws an IOException that no retry can cure. */
  def attempt[T](body: => T): Option[T] =
    try Some(body)
    catch {
      case e @ (_: AccessDeniedException | _: FileNotFoundException |
          _: java.io.InterruptedIOException) if !Retry.isTimeout(e) => throw e
      case e: IOException if System.nanoTime() > end => throw e
      case _: IOException =>
        Thread.sleep(pauseMs)
        pauseMs = (pauseMs * 2).min(settings.pauseMs * 64)
        None
    }
}

private[stored] object Retry {
  private val MaxMs = 1L << 42 // above it, nanoseconds don't fit into a Long

  /** Repeat `body` until it succeeds, or until its failure is final. */
  def apply[T](settings: LedgerSettings)(body: => T): T = {
    val retry = new Retry(settings)
    Iterator.continually(retry.attempt(body)).collectFirst { case Some(answer) => answer }.get
  }

  def isTimeout(e: Throwable): Boolean = e.isInstanceOf[java.net.SocketTimeoutException]
}
