package sparklog.datasource

import org.apache.spark.sql.connector.metric.{CustomMetric, CustomTaskMetric}
import org.apache.spark.sql.connector.read.{Batch, Scan}
import org.apache.spark.sql.connector.read.streaming.{
  ContinuousStream, MicroBatchStream, SupportsTriggerAvailableNow
}
import org.apache.spark.sql.internal.connector.SupportsMetadata
import org.apache.spark.sql.types.StructType

/** A read of the log, as a batch or as a stream. */
final class LogScan(python: Scan) extends Scan with SupportsMetadata {
  override def readSchema(): StructType = python.readSchema()
  override def description(): String = "(sparklog)"
  override def supportedCustomMetrics(): Array[CustomMetric] = python.supportedCustomMetrics()
  override def reportDriverMetrics(): Array[CustomTaskMetric] = python.reportDriverMetrics()
  override def columnarSupportMode(): Scan.ColumnarSupportMode = python.columnarSupportMode()

  override def getMetaData(): Map[String, String] = python match {
    case scan: SupportsMetadata => scan.getMetaData()
    case _ => Map.empty
  }

  override def toBatch(): Batch = new LogBatch(python.toBatch())

  override def toMicroBatchStream(checkpointLocation: String): MicroBatchStream =
    python.toMicroBatchStream(checkpointLocation) match {
      case stream: MicroBatchStream with SupportsTriggerAvailableNow => new LogStream(stream)
      case other => other
    }

  override def toContinuousStream(checkpointLocation: String): ContinuousStream =
    python.toContinuousStream(checkpointLocation)
}
