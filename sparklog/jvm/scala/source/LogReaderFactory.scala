package sparklog.source

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.read.{InputPartition, PartitionReader, PartitionReaderFactory}
import org.apache.spark.sql.types.StructType

/** Gives the JVM's reader access to the partitions of the Python source. Sent to the executors. */
trait PythonPartitions extends Serializable {
  /** Return the plan (JSON) of a partition; null if only Python reads the partition. */
  def plan(partition: InputPartition): Array[Byte]

  /** Return Python's reader of a whole partition. */
  def reader(partition: InputPartition): PartitionReader[InternalRow]

  /** Return Python's reader of the rest of a partition: see LogPartitionReader. */
  def reader(partition: InputPartition, piece: Int, at: Long): PartitionReader[InternalRow]
}

/**
 * Reads a partition in this JVM if the partition has a plan, else in Python. `schema`: the schema
 * of the scan.
 */
final class LogReaderFactory(schema: StructType, python: PythonPartitions)
    extends PartitionReaderFactory {
  override def createReader(partition: InputPartition): PartitionReader[InternalRow] = {
    val plan = python.plan(partition)
    if (plan == null) python.reader(partition)
    else new LogPartitionReader(
      ReadPlan.parse(plan), schema, (piece, at) => python.reader(partition, piece, at))
  }
}
