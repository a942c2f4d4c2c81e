package sparklog.datasource

import org.apache.spark.sql.connector.read.{Batch, InputPartition, PartitionReaderFactory}

/** One read of the log. */
final class LogBatch(python: Batch) extends Batch {
  override def planInputPartitions(): Array[InputPartition] = python.planInputPartitions()
  override def createReaderFactory(): PartitionReaderFactory = python.createReaderFactory()
}
