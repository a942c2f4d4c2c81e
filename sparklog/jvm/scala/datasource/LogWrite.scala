package sparklog.datasource

import org.apache.spark.sql.connector.metric.{CustomMetric, CustomTaskMetric}
import org.apache.spark.sql.connector.write._
import org.apache.spark.sql.connector.write.streaming.StreamingWrite
import org.apache.spark.sql.execution.datasources.v2.python.PythonWriteBuilder
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

import sparklog.DefaultSource

/** Plans a write. `mover`: who writes it will be told to. */
private[datasource] final class LogWriteBuilder(
    source: DefaultSource, name: String, info: LogicalWriteInfo, mover: DataPath)
    extends SupportsTruncate {
  private val python = new PythonWriteBuilder(source, name, new PlannedWriteInfo(info))

  override def truncate(): WriteBuilder = {
    python.truncate()
    this
  }

  override def build(): Write = new LogWrite(python.build(), info, mover)
}

/** What Spark says of a write, for a Python source that is to plan it for this JVM. */
private final class PlannedWriteInfo(info: LogicalWriteInfo) extends LogicalWriteInfo {
  override val options: CaseInsensitiveStringMap = CallerOptions.planning(info.options)
  override def queryId(): String = info.queryId
  override def schema(): StructType = info.schema
  override def rowIdSchema(): java.util.Optional[StructType] = info.rowIdSchema
  override def metadataSchema(): java.util.Optional[StructType] = info.metadataSchema
}

/** A write to the log, of a batch or of a stream. */
private[datasource] final class LogWrite(python: Write, info: LogicalWriteInfo, mover: DataPath)
    extends Write {
  override def description(): String = "(sparklog)"
  override def supportedCustomMetrics(): Array[CustomMetric] = python.supportedCustomMetrics()
  override def reportDriverMetrics(): Array[CustomTaskMetric] = python.reportDriverMetrics()
  override def toBatch(): BatchWrite = new LogBatchWrite(python.toBatch(), info, mover)
  override def toStreaming(): StreamingWrite =
    new LogStreamingWrite(python.toStreaming(), info, mover)
  override def toString: String = python.toString
}
