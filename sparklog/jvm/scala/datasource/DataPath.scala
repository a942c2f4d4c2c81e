package sparklog.datasource

import java.util.{LinkedHashMap, Map => JavaMap}

import org.slf4j.LoggerFactory

/**
 * The data path of a read or a write: whether the JVM or Python moves the bytes, according to the
 * last plan. Changes are logged.
 */
private[sparklog] final class DataPath {
  import DataPath._

  @volatile private var last: Choice = _

  /**
   * Log the data path when it is chosen first and when it changes.
   *
   * @param run the run id of a streaming query, else null
   * @param what the work, such as "reads t of /data/log"
   */
  def say(run: String, what: String, choice: Choice): Unit = if (choice != last) {
    last = choice
    val who = if (run == null) "a batch" else run
    choice match {
      case Jvm => log.info("{}: {} in the JVM", who, what)
      case Python(why, false) => log.info("{}: {} in Python: {}", who, what, why)
      case Python(why, true) => log.warn("{}: {} in Python: {}", who, what, why)
      case Both(why) =>
        log.info("{}: {} in the JVM, and some partitions in Python: {}", who, what, why)
    }
  }

  /**
   * Return the data path for a query's progress: {role: jvm, python, or both}, and the reason for
   * Python.
   */
  def metrics(role: String): JavaMap[String, String] = {
    val found = new LinkedHashMap[String, String]
    last match {
      case null =>
      case Jvm => found.put(role, "jvm")
      case Python(why, _) => found.put(role, "python"); found.put(s"${role}Reason", why)
      case Both(why) => found.put(role, "jvm, python"); found.put(s"${role}Reason", why)
    }
    found
  }
}

private[sparklog] object DataPath {
  private val log = LoggerFactory.getLogger("sparklog")

  sealed trait Choice
  case object Jvm extends Choice
  /** `isFault`: the reason is a wrong installation of sparklog. */
  final case class Python(why: String, isFault: Boolean = false) extends Choice
  final case class Both(why: String) extends Choice
}
