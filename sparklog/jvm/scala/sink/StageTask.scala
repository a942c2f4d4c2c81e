package sparklog.sink

import java.util.ArrayList

import org.apache.spark.{TaskContext, TaskKilledException}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.types.StructType

/**
 * An attempt of a task, which stages rows under names that are unique to the attempt. In a Spark
 * task the object cleans up when the task ends, for any reason; elsewhere, call `discard` and
 * `close`.
 *
 * Memory: OpenBytesMax, the memory of `place` and of the codecs, and about 400 bytes per partition;
 * in total below 64 MiB, except for records larger than OpenBytesMax.
 *
 * @param number the number of the task, the same for all its attempts
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

  /**
   * Stage a row. Throws a StageError if the row is invalid, and a TaskKilledException if Spark ends
   * the task.
   */
  def add(row: InternalRow): Unit = {
    if ((rows & CheckMask) == 0 && context != null && context.isInterrupted()) {
      throw new TaskKilledException("the task was ended while it staged rows")
    }
    rows += 1
    stager.add(row)
  }

  /** Return the chunks that were closed since the last call, to be sent now. */
  def taken(): ArrayList[Chunk] = stager.taken()

  /**
   * Return all chunks that were not sent, in the order in which their partitions must append them.
   */
  def finish(): ArrayList[Chunk] = {
    val chunks = stager.finish()
    isFinished = true
    chunks
  }

  /** Delete the staged chunks. Throws nothing; may be called at any time. */
  def discard(): Unit = place.discard()

  /** Release native memory. */
  def close(): Unit = if (!isClosed) {
    isClosed = true
    stager.close()
  }
}

private[sink] object StageTask {
  /** Maximum memory of open batches. */
  val OpenBytesMax: Long = 20L << 20
  /** Maximum memory of chunks that become files when they grow. */
  val HeldBytesMax: Long = 16L << 20
  /** Maximum bytes that all tasks together send to the driver. */
  val InlineBytesMax: Long = 64L << 20
  private val CheckMask = 1023L

  /**
   * Create a task that writes files of a log dir. Throws a StageError if this process does not see
   * the log dir of the driver.
   */
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
