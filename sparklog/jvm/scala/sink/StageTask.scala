package sparklog.sink

import java.util.ArrayList

import org.apache.spark.{TaskContext, TaskKilledException}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.types.StructType

/**
 * One attempt of one task: its rows are staged under names that no other attempt has. In a Spark
 * task it cleans up after itself, whatever ends the task; elsewhere `discard` and `close` do.
 *
 * Memory: OpenBytesMax, what `place` holds, the codecs' own, some 400 bytes a partition; in all
 * below 64 MiB, but for records larger than OpenBytesMax.
 *
 * @param number the task's, the same for all its attempts
 */
private[sink] final class StageTask(
    plan: StagePlan, schema: StructType, number: Int, place: ChunkPlace) {
  import StageTask._

  private val context = TaskContext.get()
  private val stager = new ChunkStager(
    plan, schema, place, () => System.currentTimeMillis, plan.spreadStart(number), OpenBytesMax)
  private var rows = 0L
  private var isFinished = false
  private var isClosed = false

  if (context != null) context.addTaskCompletionListener[Unit](_ => ended())

  private def ended(): Unit = {
    if (!isFinished || context.isFailed()) discard()
    close()
  }

  /** Stage a row. A StageError if it is bad; a TaskKilledException if Spark ends the task. */
  def add(row: InternalRow): Unit = {
    if ((rows & CheckMask) == 0 && context != null && context.isInterrupted()) {
      throw new TaskKilledException("it was ended while it staged rows")
    }
    rows += 1
    stager.add(row)
  }

  /** The chunks that are closed by now, which leave the task. */
  def taken(): ArrayList[Chunk] = stager.taken()

  /** All chunks that haven't left, in the order in which their partitions must get them. */
  def finish(): ArrayList[Chunk] = {
    val chunks = stager.finish()
    isFinished = true
    chunks
  }

  /** Delete what was staged. Throws nothing; may be called at any time. */
  def discard(): Unit = place.discard()

  /** Give back what isn't on the heap. */
  def close(): Unit = if (!isClosed) {
    isClosed = true
    stager.close()
  }
}

private[sink] object StageTask {
  /** Of batches that are open. */
  val OpenBytesMax: Long = 20L << 20
  /** Of chunks in memory that go to files when they grow. */
  val HeldBytesMax: Long = 16L << 20
  /** That all tasks together send to the driver at most. */
  val InlineBytesMax: Long = 64L << 20
  private val CheckMask = 1023L

  /** A task that writes the files of a log dir. A StageError if that isn't the driver's. */
  def inFiles(plan: StagePlan, schema: StructType, number: Int): StageTask = {
    LogDirCheck.check(plan.place)
    val context = TaskContext.get()
    val most = plan.place.get("inline_bytes").asLong
    val inline =
      if (context == null) most else math.min(most, InlineBytesMax / context.numPartitions())
    new StageTask(plan, schema, number,
      new ChunkFiles(plan, s"${plan.label}-$number", inline, HeldBytesMax))
  }
}
