package sparklog.sink

import java.nio.ByteBuffer
import java.util.ArrayList

/**
 * A chunk to which record batches of a partition are still added. Offsets count from 0. Batches in
 * memory are in `parts`, in order; a ChunkPlace may store them in `file` instead.
 */
private[sink] final class GrowingChunk(val topic: TopicPlan, val partition: Int) {
  var sizeBytes = 0L
  var records = 0L
  var minTimestamp = Long.MaxValue // ms
  var maxTimestamp = -1L // ms
  val parts = new ArrayList[Array[Byte]]
  /** Bytes in `parts`. */
  var heldBytes = 0L
  var file: ChunkFile = _

  /** Add a copy of the batches to `parts`. */
  def keep(batches: ByteBuffer): Unit = {
    val copy = new Array[Byte](batches.remaining)
    batches.get(copy)
    parts.add(copy)
    heldBytes += copy.length
  }

  /** Remove and return the batches in memory. */
  def takeParts(): Array[Array[Byte]] = {
    val taken = parts.toArray(new Array[Array[Byte]](parts.size))
    parts.clear()
    heldBytes = 0
    taken
  }

  def inMemory(): Chunk = closed(takeParts(), null, null)
  def inFile(path: String, bootId: String): Chunk = closed(null, path, bootId)

  private def closed(parts: Array[Array[Byte]], path: String, bootId: String): Chunk = new Chunk(
    topic, partition, sizeBytes, records, minTimestamp, maxTimestamp, parts, path, bootId)
}

/**
 * A complete chunk: its batches are in memory (`parts`) or in a file (`path`).
 *
 * @param bootId the boot id of the host when the file was synced; null if it was not synced
 */
private[sink] final class Chunk(
    val topic: TopicPlan, val partition: Int, val sizeBytes: Long, val records: Long,
    val minTimestamp: Long, val maxTimestamp: Long, val parts: Array[Array[Byte]],
    val path: String, val bootId: String) {
  def isInMemory: Boolean = path == null

  /** Return this chunk after its batches were moved from memory to a file. */
  def movedTo(path: String): Chunk = new Chunk(
    topic, partition, sizeBytes, records, minTimestamp, maxTimestamp, null, path, null)
}
