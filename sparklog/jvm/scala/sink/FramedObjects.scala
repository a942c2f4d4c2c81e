package sparklog.sink

import java.util.ArrayList

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.types.StructType

/**
 * Iterates over the framed and compressed rows of a task, to be uploaded to a store: for each
 * object a packed table without data, then the data of the object. The last element is the error of
 * an invalid row, if there is one.
 */
private[sink] final class FramedObjects(
    planJson: Array[Byte], schema: StructType, number: Int, rows: Iterator[InternalRow])
    extends Iterator[Array[Byte]] {
  private val plan = StagePlan.parse(planJson)
  private val place = new ChunksForObjects(plan.place.get("object_bytes").asLong)
  private val task = new StageTask(plan, schema, number, place)
  private var isDone = false
  private var part: Array[Byte] = _ // the next element; null: not made yet
  private var data: Array[Byte] = _ // the element after `part`

  override def hasNext: Boolean = {
    if (part == null && data != null) {
      part = data
      data = null
    }
    if (part == null && !isDone) make()
    part != null
  }

  override def next(): Array[Byte] = {
    if (!hasNext) throw new NoSuchElementException
    val made = part
    part = null
    made
  }

  private def make(): Unit =
    try {
      while (!place.isFull && rows.hasNext) task.add(rows.next())
      if (place.isFull) {
        keep(task.taken())
        place.taken()
      } else {
        isDone = true
        val chunks = task.finish()
        if (!chunks.isEmpty) keep(chunks)
      }
    } catch {
      case e: StageError if !e.isRetriable =>
        isDone = true
        part = Answer.error(e)
    }

  private def keep(chunks: ArrayList[Chunk]): Unit = {
    part = Answer.tableWithoutData(chunks)
    data = ChunkTable.data(chunks)
  }
}
