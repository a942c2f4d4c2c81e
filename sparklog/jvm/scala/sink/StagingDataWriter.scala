package sparklog.sink

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.write.{DataWriter, WriterCommitMessage}
import org.apache.spark.sql.types.StructType

/**
 * A write task of `format("sparklog")`, which stages rows as SegmentSink does. `commit` returns a
 * StagedTable; callers with another message for the driver use `stage` instead.
 *
 * @param planJson of sparklog/sink/jvm_plan.py
 * @param schema of the rows; columns that the plan doesn't name are ignored
 * @param taskId the task's number, the same for all its attempts
 * @param label replaces the plan's label; null: the plan's
 */
final class StagingDataWriter(
    planJson: Array[Byte], schema: StructType, taskId: Int, label: String = null)
    extends DataWriter[InternalRow] {
  private val task = StageTask.inFiles(StagePlan.parse(planJson, label), schema, taskId)

  /** A StageError if the row can't be staged. */
  override def write(row: InternalRow): Unit = task.add(row)

  /** All staged chunks, for ChunkTable.unpack (sparklog/storage/chunk_table.py). */
  def stage(): Array[Byte] = ChunkTable.pack(task.finish(), Array.empty)

  override def commit(): WriterCommitMessage = new StagedTable(stage())

  override def abort(): Unit = task.discard()

  override def close(): Unit = task.close()
}

/** A packed ChunkTable as a message to the driver. */
final class StagedTable(val packed: Array[Byte]) extends WriterCommitMessage
