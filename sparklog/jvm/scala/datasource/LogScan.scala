package sparklog.datasource

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.connector.metric.{CustomMetric, CustomTaskMetric}
import org.apache.spark.sql.connector.read.{Batch, Scan}
import org.apache.spark.sql.connector.read.streaming.{ContinuousStream, MicroBatchStream}
import org.apache.spark.sql.execution.datasources.v2.python.{
  PythonDataSourceV2, PythonReads, PythonStreams
}
import org.apache.spark.sql.internal.connector.SupportsMetadata
import org.apache.spark.sql.sources.Filter
import org.apache.spark.sql.types.StructType

import sparklog.source.ReadMetrics

/**
 * A read of the log, as a batch or as a stream. `schema`: the schema of the table; `wanted`: the
 * selected columns.
 */
private[datasource] final class LogScan(
    source: ScanSource, schema: StructType, wanted: StructType, filters: Array[Filter])
    extends Scan with SupportsMetadata {
  private val python = PythonReads.scan(source, source.name, wanted, source.options, filters)

  override def readSchema(): StructType = wanted
  override def description(): String = "(sparklog)"
  override def getMetaData(): Map[String, String] = python.getMetaData()
  override def reportDriverMetrics(): Array[CustomTaskMetric] = python.reportDriverMetrics()
  override def columnarSupportMode(): Scan.ColumnarSupportMode = python.columnarSupportMode()

  override def supportedCustomMetrics(): Array[CustomMetric] =
    python.supportedCustomMetrics() ++ ReadMetrics.supported

  override def toBatch(): Batch = new LogBatch(source, schema, wanted)

  override def toMicroBatchStream(checkpointLocation: String): MicroBatchStream = {
    val context = SparkSession.active.sparkContext
    // Python receives the ids of the query, so the query needs a Python source of its own.
    val options = CallerOptions.streaming(source.options, context)
    val own = new PythonDataSourceV2
    own.setShortName(source.name)
    val scan = PythonReads.scan(own, source.name, wanted, options, filters)
    val stream = PythonStreams.admitting(scan.toMicroBatchStream(checkpointLocation))
    new LogStream(stream, wanted, options, CallerOptions.run(context))
  }

  override def toContinuousStream(checkpointLocation: String): ContinuousStream =
    python.toContinuousStream(checkpointLocation)
}
