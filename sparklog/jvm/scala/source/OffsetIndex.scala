package sparklog.source

import java.nio.ByteBuffer
import java.nio.channels.FileChannel
import java.nio.file.{NoSuchFileException, Path, StandardOpenOption}

/**
 * The offset index of a segment (`.index`), which shows where to start looking for an offset. An
 * entry has no checksum, and the index may end with zeros, so the caller verifies the position.
 * Source: sparklog/log/offset_lookup.py.
 */
private[source] object OffsetIndex {
  private val EntryBytes = 8
  /** This number of entries is read at once, because bisecting further costs more reads. */
  private val Block = 512

  /**
   * Return the position of a batch at or before `offset`; 0 if there is no index or no such entry.
   */
  def position(index: Path, base: Long, offset: Long): Long =
    if (offset <= base) 0
    else
      try {
        val channel = FileChannel.open(index, StandardOpenOption.READ)
        try search(channel, offset - base)
        finally channel.close()
      } catch { case _: NoSuchFileException => 0 }

  private def search(channel: FileChannel, relative: Long): Long = {
    var low = 0 // all entries before it are at or below `relative`
    var high = math.min(channel.size / EntryBytes, Int.MaxValue).toInt
    while (high - low > Block) {
      val middle = (low + high) >>> 1
      val entry = read(channel, middle, 1)
      if (isWanted(entry, 0, relative)) low = middle + 1 else high = middle
    }
    val first = math.max(low - 1, 0)
    val entries = read(channel, first, high - first)
    var position = 0L
    var at = 0
    while (isWanted(entries, at, relative)) {
      position = entries.getInt(at + 4)
      at += EntryBytes
    }
    position
  }

  private def read(channel: FileChannel, first: Int, count: Int): ByteBuffer = {
    val entries = ByteBuffer.allocate(count * EntryBytes)
    val at = first.toLong * EntryBytes
    var more = true
    while (more && entries.hasRemaining) more = channel.read(entries, at + entries.position()) > 0
    entries.flip()
  }

  /**
   * Return whether the entry is at or below `relative`. An entry of zeros was never written and
   * counts as above all others.
   */
  private def isWanted(entries: ByteBuffer, at: Int, relative: Long): Boolean =
    entries.limit() - at >= EntryBytes && entries.getLong(at) != 0 && entries.getInt(at) <= relative
}
