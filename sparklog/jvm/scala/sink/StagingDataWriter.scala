package sparklog.sink

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.write.{DataWriter, WriterCommitMessage}
import org.apache.spark.sql.types.StructType

/**
 * A write task of `format("sparklog")`, which stages rows as SegmentSink does. `commit` returns a
 * StagedTable; callers that send another message to the driver use `stage` instead.
 *
 * @param planJson the plan of sparklog/sink/jvm_plan.py
 * @param schema the schema of the rows; columns that the plan doesn't name are ignored
 * @param taskId the number of the task, the same for all its attempts
 * @param label replaces the label of the plan; null: use the label of the plan
 */
final class StagingDataWriter(
    planJson: Array[Byte], schema: StructType, taskId: Int, label: String = null)
    extends DataWriter[InternalRow] {
  private val task = StageTask.inFiles(StagePlan.parse(planJson, label), schema, taskId)

  /** Stage a row. Throws a StageError if the row can't be staged. */
  override def write(row: InternalRow): Unit = task.add(row)

  /** Return all staged chunks, packed for ChunkTable.unpack (sparklog/storage/chunk_table.py). */
  def stage(): Array[Byte] = ChunkTable.pack(task.finish(), Array.empty)

  override def commit(): WriterCommitMessage = new StagedTable(stage())

  override def abort(): Unit = task.discard()

  override def close(): Unit = task.close()
}

/** A packed ChunkTable as a message to the driver. */
final class StagedTable(val packed: Array[Byte]) extends WriterCommitMessage
