package sparklog.datasource

import org.apache.spark.sql.connector.metric.{CustomMetric, CustomTaskMetric}
import org.apache.spark.sql.connector.write._
import org.apache.spark.sql.connector.write.streaming.StreamingWrite

/** Plans a write. */
final class LogWriteBuilder(python: WriteBuilder) extends SupportsTruncate {
  override def truncate(): WriteBuilder = {
    python.asInstanceOf[SupportsTruncate].truncate()
    this
  }

  override def build(): Write = new LogWrite(python.build())
}

/** A write to the log, of a batch or of a stream. */
final class LogWrite(python: Write) extends Write {
  override def description(): String = "(sparklog)"
  override def supportedCustomMetrics(): Array[CustomMetric] = python.supportedCustomMetrics()
  override def reportDriverMetrics(): Array[CustomTaskMetric] = python.reportDriverMetrics()
  override def toBatch(): BatchWrite = python.toBatch()
  override def toStreaming(): StreamingWrite = python.toStreaming()
  override def toString: String = python.toString
}
