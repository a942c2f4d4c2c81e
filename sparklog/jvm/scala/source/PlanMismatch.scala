package sparklog.source

import java.io.IOException

/**
 * What is found isn't what was planned, or nothing that is read here: for Python to judge. It comes
 * to the partition's reader at once, so that where it began is no news.
 */
final class PlanMismatch(message: String) extends IOException(message) {
  override def fillInStackTrace(): Throwable = this
}
