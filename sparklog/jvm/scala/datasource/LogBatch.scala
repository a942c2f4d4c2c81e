package sparklog.datasource

import org.apache.spark.sql.connector.read.{Batch, InputPartition, PartitionReaderFactory}
import org.apache.spark.sql.execution.datasources.v2.python.PythonBatch
import org.apache.spark.sql.types.StructType

import sparklog.source.LogReaderFactory

/**
 * A read of the log. Python plans for all columns of the table, so that a later read of other
 * columns needs no other plan. Python gets only the wanted columns where it reads itself.
 */
private[datasource] final class LogBatch(source: ScanSource, schema: StructType, wanted: StructType)
    extends Batch {
  private val whole = new PythonBatch(source, source.name, schema, source.options)
  private val pruned = ReadColumns.ofPython(schema, wanted)
  private val narrow = new PythonBatch(source, source.name, pruned, source.options)

  private lazy val planned = PlannedPartitions.of(whole.planInputPartitions())

  override def planInputPartitions(): Array[InputPartition] = {
    if (planned.partitions.nonEmpty) {
      val what = s"reads ${CallerOptions.described(source.options)}"
      new DataPath().say(null, what, planned.dataPath)
    }
    planned.partitions
  }

  override def createReaderFactory(): PartitionReaderFactory = {
    val isNarrow = planned.dataPath != DataPath.Jvm && !source.hasPushed
    val (python, given) = if (isNarrow) (narrow, pruned) else (whole, schema)
    new LogReaderFactory(wanted,
      new UnpackedPartitions(python.createReaderFactory(), given, wanted))
  }
}
