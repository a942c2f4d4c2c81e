package sparklog.datasource

import org.apache.spark.sql.connector.read.{Batch, InputPartition, PartitionReaderFactory}
import org.apache.spark.sql.execution.datasources.v2.python.PythonReads
import org.apache.spark.sql.types.StructType

import sparklog.source.LogReaderFactory

/**
 * A batch read of the log. Python plans for all columns of the table, so that a later read of other
 * columns can use the same plan. Where Python reads the records itself, Python returns only the
 * wanted columns.
 */
private[datasource] final class LogBatch(source: ScanSource, schema: StructType, wanted: StructType)
    extends Batch {
  private val whole = PythonReads.batch(source, source.name, schema, source.options)
  private val pruned = ReadColumns.ofPython(schema, wanted)
  private val narrow = PythonReads.batch(source, source.name, pruned, source.options)

  private lazy val planned = PlannedPartitions.of(
    whole.planInputPartitions(), CallerOptions.whyPython(source.options))

  override def planInputPartitions(): Array[InputPartition] = {
    if (planned.partitions.nonEmpty) {
      val what = s"reads ${CallerOptions.described(source.options)}"
      new DataPath().say(null, what, planned.dataPath)
    }
    planned.partitions
  }

  override def createReaderFactory(): PartitionReaderFactory = {
    // Filters were pushed down with the whole schema, and Python's rows then have all of its
    // columns.
    val isNarrow = planned.dataPath != DataPath.Jvm && !source.hasPushed
    val (python, given) = if (isNarrow) (narrow, pruned) else (whole, schema)
    new LogReaderFactory(wanted,
      new UnpackedPartitions(python.createReaderFactory(), given, wanted))
  }
}
