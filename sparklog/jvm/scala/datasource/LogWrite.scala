package sparklog.datasource

import org.apache.spark.sql.connector.metric.{CustomMetric, CustomTaskMetric}
import org.apache.spark.sql.connector.write._
import org.apache.spark.sql.connector.write.streaming.StreamingWrite
import org.apache.spark.sql.execution.datasources.v2.python.PythonWriteBuilder
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

import sparklog.DefaultSource

/**
 * Plans a write. `jvm`: the option of the table; `dataPath` stores the data path that the plan
 * chooses.
 */
private[datasource] final class LogWriteBuilder(
    source: DefaultSource,
    name: String,
    info: LogicalWriteInfo,
    jvm: Option[String],
    dataPath: DataPath)
    extends SupportsTruncate {
  private val planned = new PlannedWriteInfo(info, jvm)
  private val python = new PythonWriteBuilder(source, name, planned)

  override def truncate(): WriteBuilder = {
    python.truncate()
    this
  }

  override def build(): Write = new LogWrite(python.build(), planned, dataPath)
}

/**
 * Spark's information about a write, with the options for a Python source that plans for this JVM.
 */
private final class PlannedWriteInfo(info: LogicalWriteInfo, jvm: Option[String])
    extends LogicalWriteInfo {
  override val options: CaseInsensitiveStringMap =
    CallerOptions.planning(CallerOptions.withDefault(info.options, jvm))
  override def queryId(): String = info.queryId
  override def schema(): StructType = info.schema
  override def rowIdSchema(): java.util.Optional[StructType] = info.rowIdSchema
  override def metadataSchema(): java.util.Optional[StructType] = info.metadataSchema
}

/** A write to the log, of a batch or of a stream. */
private[datasource] final class LogWrite(python: Write, info: LogicalWriteInfo, dataPath: DataPath)
    extends Write {
  override def description(): String = "(sparklog)"
  override def supportedCustomMetrics(): Array[CustomMetric] = python.supportedCustomMetrics()
  override def reportDriverMetrics(): Array[CustomTaskMetric] = python.reportDriverMetrics()
  override def toBatch(): BatchWrite = new LogBatchWrite(python.toBatch(), info, dataPath)
  override def toStreaming(): StreamingWrite =
    new LogStreamingWrite(python.toStreaming(), info, dataPath)
  override def toString: String = python.toString
}
