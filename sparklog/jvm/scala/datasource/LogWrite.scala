package sparklog.datasource

import org.apache.spark.sql.connector.metric.{CustomMetric, CustomTaskMetric}
import org.apache.spark.sql.connector.write._
import org.apache.spark.sql.connector.write.streaming.StreamingWrite
import org.apache.spark.sql.execution.datasources.v2.python.PythonWriteBuilder

import sparklog.DefaultSource

/** Plans a write. */
private[datasource] final class LogWriteBuilder(
    source: DefaultSource, name: String, info: LogicalWriteInfo, mover: Mover)
    extends SupportsTruncate {
  private val python = new PythonWriteBuilder(source, name, info)

  override def truncate(): WriteBuilder = {
    python.truncate()
    this
  }

  override def build(): Write = new LogWrite(python.build())
}

/** A write to the log, of a batch or of a stream. */
private[datasource] final class LogWrite(python: Write) extends Write {
  override def description(): String = "(sparklog)"
  override def supportedCustomMetrics(): Array[CustomMetric] = python.supportedCustomMetrics()
  override def reportDriverMetrics(): Array[CustomTaskMetric] = python.reportDriverMetrics()
  override def toBatch(): BatchWrite = python.toBatch()
  override def toStreaming(): StreamingWrite = python.toStreaming()
  override def toString: String = python.toString
}
