package sparklog.sink

import java.nio.ByteBuffer
import java.util.ArrayList

/**
 * Stores the chunks of a task while they grow and after they are closed. For use by a single
 * thread.
 */
private[sink] trait ChunkPlace {
  /**
   * Add record batches at the end of a chunk, whose size and count already include them. The caller
   * reuses the buffer. Return true if all chunks must be closed now and new ones begun.
   */
  def grow(chunk: GrowingChunk, batches: ByteBuffer): Boolean

  /** Close a chunk, which has at least one batch. */
  def close(chunk: GrowingChunk): Chunk

  /** Return the chunks for the commit, in the given order. All chunks are closed. */
  def finish(chunks: ArrayList[Chunk]): ArrayList[Chunk]

  /** Delete everything that was staged and not reported. Throws nothing. */
  def discard(): Unit
}

/** Keeps all chunks in memory. Throws TooMuchStaged above `bytesMax`. */
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
 * Keeps chunks in memory up to the size of an object. Then all chunks are closed and sent, which
 * the caller reports by `taken`. Memory: `objectBytes` and one batch.
 */
private[sink] final class ChunksForObjects(objectBytes: Long) extends ChunkPlace {
  private var held = 0L

  override def grow(chunk: GrowingChunk, batches: ByteBuffer): Boolean = {
    held += batches.remaining
    chunk.keep(batches)
    isFull
  }

  def isFull: Boolean = held >= objectBytes

  /** Record that the closed chunks were sent. */
  def taken(): Unit = held = 0

  override def close(chunk: GrowingChunk): Chunk = chunk.inMemory()
  override def finish(chunks: ArrayList[Chunk]): ArrayList[Chunk] = chunks
  override def discard(): Unit = ()
}
