package sparklog.datasource

import org.apache.spark.sql.connector.read.{InputPartition, PartitionReaderFactory}
import org.apache.spark.sql.connector.read.streaming.{
  MicroBatchStream, Offset, ReadLimit, SupportsTriggerAvailableNow
}

/** A stream of the log: offsets and admission are the Python source's. */
final class LogStream(python: MicroBatchStream with SupportsTriggerAvailableNow)
    extends MicroBatchStream with SupportsTriggerAvailableNow {
  override def initialOffset(): Offset = python.initialOffset()
  override def deserializeOffset(json: String): Offset = python.deserializeOffset(json)
  override def latestOffset(): Offset = python.latestOffset()
  override def latestOffset(start: Offset, limit: ReadLimit): Offset =
    python.latestOffset(start, limit)
  override def reportLatestOffset(): Offset = python.reportLatestOffset()
  override def getDefaultReadLimit(): ReadLimit = python.getDefaultReadLimit()
  override def prepareForTriggerAvailableNow(): Unit = python.prepareForTriggerAvailableNow()
  override def commit(end: Offset): Unit = python.commit(end)
  override def stop(): Unit = python.stop()

  override def planInputPartitions(start: Offset, end: Offset): Array[InputPartition] =
    python.planInputPartitions(start, end)

  override def createReaderFactory(): PartitionReaderFactory = python.createReaderFactory()

  /** Progress shows it. */
  override def toString: String = "sparklog"
}
