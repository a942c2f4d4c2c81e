package sparklog.sink

import java.nio.ByteBuffer
import java.util.ArrayList

/** Where the chunks of one task go, while they grow and at their end. For one thread. */
private[sink] trait ChunkPlace {
  /**
   * Take record batches at a chunk's end; its size and count tell of them already. The buffer is
   * used again. True if all chunks are to be closed now, and new ones begun behind them.
   */
  def grow(chunk: GrowingChunk, batches: ByteBuffer): Boolean

  /** End a chunk, which isn't empty. */
  def close(chunk: GrowingChunk): Chunk

  /** The chunks as they are to be committed: all are closed, in their order. */
  def finish(chunks: ArrayList[Chunk]): ArrayList[Chunk]

  /** Let go of all that was staged: nobody was told of it. Throws nothing. */
  def discard(): Unit
}

/** All stays in memory; TooMuchStaged if that is more than `bytesMax`. */
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
 * All stays in memory until there is as much as an object has: all chunks are then closed, and
 * leave (`taken`). Memory: `objectBytes`, and one batch.
 */
private[sink] final class ChunksForObjects(objectBytes: Long) extends ChunkPlace {
  private var held = 0L

  override def grow(chunk: GrowingChunk, batches: ByteBuffer): Boolean = {
    held += batches.remaining
    chunk.keep(batches)
    isFull
  }

  def isFull: Boolean = held >= objectBytes

  /** What was closed has left. */
  def taken(): Unit = held = 0

  override def close(chunk: GrowingChunk): Chunk = chunk.inMemory()
  override def finish(chunks: ArrayList[Chunk]): ArrayList[Chunk] = chunks
  override def discard(): Unit = ()
}
