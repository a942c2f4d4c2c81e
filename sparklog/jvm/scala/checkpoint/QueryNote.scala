package sparklog.checkpoint

import java.nio.charset.StandardCharsets.UTF_8

import scala.util.control.NonFatal

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.StartedQuery

/** The name and the sink of a query, as a file of its checkpoint: Spark's files lack them. */
object QueryNote extends Logging {
  /** The name of the file, which sparklog/checkpoint/query_sink.py reads. */
  val Key = "sparklog.query"

  /** Return the content of the file; None, with a warning, if the query can't be described. */
  def of(query: String, checkpoint: String): Option[Array[Byte]] =
    try StartedQuery.describe(query).map(_.getBytes(UTF_8))
    catch {
      case NonFatal(e) =>
        logWarning(s"$checkpoint: the name and sink of query $query were not stored", e)
        None
    }
}
