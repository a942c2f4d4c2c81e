package sparklog.sink

import java.nio.ByteBuffer
import java.util.ArrayList

/** Stores the chunks of a task while they grow and at their end. For one thread. */
private[sink] trait ChunkPlace {
  /**
   * Add record batches at a chunk's end; its size and count already include them. The buffer is
   * reused by the caller. Return true if all chunks must be closed now and new ones begun.
   */
  def grow(chunk: GrowingChunk, batches: ByteBuffer): Boolean

  /** Close a chunk, which isn't empty. */
  def close(chunk: GrowingChunk): Chunk

  /** Return the chunks for the commit: all are closed, in their order. */
  def finish(chunks: ArrayList[Chunk]): ArrayList[Chunk]

  /** Delete all that was staged and not reported. Throws nothing. */
  def discard(): Unit
}

/** All chunks stay in memory; TooMuchStaged above `bytesMax`. */
private[sink] final class ChunksInMemory(bytesMax: Long) extends ChunkPlace {
  private var held = 0L

  override def grow(chunk: GrowingChunk, batches: ByteBuffer): Boolean = {
    held += batches.remaining
    if (held > bytesMax) throw new TooMuchStaged
    chunk.keep(batches)
    false
  }

  override def close(chunk: GrowingChunk): Chunk = chunk.inMemory()
  override def finish(chunks: ArrayList[Chunk]): ArrayList[Chunk] = chunks
  override def discard(): Unit = ()
}

/**
 * Chunks stay in memory up to the size of an object; all chunks are then closed and sent (`taken`).
 * Memory: `objectBytes`, and one batch.
 */
private[sink] final class ChunksForObjects(objectBytes: Long) extends ChunkPlace {
  private var held = 0L

  override def grow(chunk: GrowingChunk, batches: ByteBuffer): Boolean = {
    held += batches.remaining
    chunk.keep(batches)
    isFull
  }

  def isFull: Boolean = held >= objectBytes

  /** The closed chunks were sent. */
  def taken(): Unit = held = 0

  override def close(chunk: GrowingChunk): Chunk = chunk.inMemory()
  override def finish(chunks: ArrayList[Chunk]): ArrayList[Chunk] = chunks
  override def discard(): Unit = ()
}
