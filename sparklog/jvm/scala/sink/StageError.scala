package sparklog.sink

import java.nio.file.{AccessDeniedException, FileSystemException, NoSuchFileException}

import com.fasterxml.jackson.databind.JsonNode

/**
 * An error of sparklog's Python package that is thrown in the JVM with the same message. The plan
 * contains the messages.
 *
 * @param kind the name of the class in sparklog.errors
 * @param path the file or log that the error is about, or null
 * @param isRetriable whether another attempt of the task may succeed
 */
final class StageError(
    val kind: String, message: String, val path: String = null, val isRetriable: Boolean = false,
    cause: Throwable = null)
    extends RuntimeException(message, cause) {
  override def toString: String = s"sparklog.errors.$kind: $getMessage"
}

/**
 * The chunks of a task that must not write files exceed the memory limit. The caller stages the
 * rows in another way.
 */
final class TooMuchStaged
    extends RuntimeException("the staged chunks of the task exceed the memory limit")

/** Creates errors by their names in the plan. */
private[sink] final class Faults(faults: JsonNode) {
  /**
   * Return the error `name`, with values inserted by name. `values`: name, value, name, value and
   * so on.
   */
  def apply(name: String, values: String*): StageError = {
    val fault = faults.get(name)
    new StageError(fault.get(0).asText, Template.filled(fault.get(1).asText, values))
  }
}

private[sink] object Template {
  /** Insert values by their names in braces, as str.format in Python does. */
  def filled(text: String, values: Seq[String]): String = {
    val out = new StringBuilder
    var at = 0
    while (at < text.length) {
      val open = text.indexOf('{', at)
      val close = if (open < 0) -1 else text.indexOf('}', open)
      if (close < 0) {
        out ++= text.substring(at)
        at = text.length
      } else {
        out ++= text.substring(at, open)
        val name = text.substring(open + 1, close)
        out ++= values(values.indices.find(i => i % 2 == 0 && values(i) == name).get + 1)
        at = close + 1
      }
    }
    out.toString
  }
}

/**
 * Creates errors of the file system with the messages of Python: the operation, the path, the
 * system's message and advice.
 */
private[sink] final class Refusals(place: JsonNode) {
  private val kind = place.path("refused").path(0).asText
  private val text = place.path("refused").path(1).asText
  private val hints = place.path("hints")

  /**
   * Return the error for an IOException. A missing file and an interrupted thread remain the
   * exceptions that they are.
   */
  def apply(verb: String, path: String, e: java.io.IOException): Throwable = e match {
    case _: NoSuchFileException | _: java.nio.channels.ClosedByInterruptException => e
    case _ =>
      val reason = reasonOf(e)
      val told = Template.filled(text,
        Seq(
          "verb", verb, "path", path, "reason", reason, "hint", hints.path(reason).asText("")))
      new StageError(kind, told, path, isRetriable = true, cause = e)
  }

  private def reasonOf(e: java.io.IOException): String = e match {
    case _: AccessDeniedException => "Permission denied"
    case e: FileSystemException if e.getReason != null => e.getReason
    case e => String.valueOf(e.getMessage)
  }
}
