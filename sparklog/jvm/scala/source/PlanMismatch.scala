package sparklog.source

import java.io.IOException

/**
 * The log differs from the plan, or contains data that only Python can read, so Python has to
 * continue. The reader of the partition catches the exception at once, so a stack trace is not
 * needed.
 */
final class PlanMismatch(message: String) extends IOException(message) {
  override def fillInStackTrace(): Throwable = this
}
