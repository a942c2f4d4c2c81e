package sparklog.sink

import java.util.ArrayList

import org.apache.spark.{TaskContext, TaskKilledException}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.types.StructType

/**
 * An attempt of a task: its rows are staged under names that are unique to the attempt. In a Spark
 * task it cleans up at the task's end, for any reason; elsewhere, call `discard` and `close`.
 *
 * Memory: OpenBytesMax, the memory of `place` and the codecs, about 400 bytes per partition; in
 * total below 64 MiB, except for records larger than OpenBytesMax.
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

  /** Stage a row. A StageError if it is invalid; a TaskKilledException if Spark ends the task. */
  def add(row: InternalRow): Unit = {
    if ((rows & CheckMask) == 0 && context != null && context.isInterrupted()) {
      throw new TaskKilledException("it was ended while it staged rows")
    }
    rows += 1
    stager.add(row)
  }

  /** The closed chunks, which are sent now. */
  def taken(): ArrayList[Chunk] = stager.taken()

  /** All chunks that were not sent, in the order in which their partitions must append them. */
  def finish(): ArrayList[Chunk] = {
    val chunks = stager.finish()
    isFinished = true
    chunks
  }

  /** Delete what was staged. Throws nothing; may be called at any time. */
  def discard(): Unit = place.discard()

  /** Release native memory. */
  def close(): Unit = if (!isClosed) {
    isClosed = true
    stager.close()
  }
}

private[sink] object StageTask {
  /** For open batches. */
  val OpenBytesMax: Long = 20L << 20
  /** For chunks in memory that become files when they grow. */
  val HeldBytesMax: Long = 16L << 20
  /** Maximum bytes that all tasks together send to the driver. */
  val InlineBytesMax: Long = 64L << 20
  private val CheckMask = 1023L

  /** A task that writes files of a log dir. A StageError if it isn't the driver's log dir. */
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
