package sparklog.source

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.read.{InputPartition, PartitionReader, PartitionReaderFactory}
import org.apache.spark.sql.types.StructType

/** The Python source's partitions, as the JVM's reader needs them. Sent to the executors. */
trait PythonPartitions extends Serializable {
  /** The plan (JSON) of a partition; null if only Python reads it. */
  def plan(partition: InputPartition): Array[Byte]

  /** Python's reader of a whole partition. */
  def reader(partition: InputPartition): PartitionReader[InternalRow]

  /** Python's reader of the rest of a partition: see LogPartitionReader. */
  def reader(partition: InputPartition, piece: Int, at: Long): PartitionReader[InternalRow]
}

/** Reads a partition in this JVM if it has a plan, else in Python. `schema`: the scan's. */
final class LogReaderFactory(schema: StructType, python: PythonPartitions)
    extends PartitionReaderFactory {
  override def createReader(partition: InputPartition): PartitionReader[InternalRow] = {
    val plan = python.plan(partition)
    if (plan == null) python.reader(partition)
    else new LogPartitionReader(
      ReadPlan.parse(plan), schema, (piece, at) => python.reader(partition, piece, at))
  }
}
