package sparklog.source

import java.nio.ByteBuffer
import java.nio.channels.FileChannel
import java.nio.file.{NoSuchFileException, Path, StandardOpenOption}

/**
 * A segment's `.index`: where to begin to look for an offset. A hint without a checksum, whose tail
 * may be zeros; whoever goes there sees for himself. Source: sparklog/log/offset_lookup.py.
 */
private[source] object OffsetIndex {
  private val EntryBytes = 8
  /** So many entries are read at once rather than halved any further. */
  private val Block = 512

  /** The position of a batch at or before `offset`, 0 if there is no index, or nothing in it. */
  def position(index: Path, base: Long, offset: Long): Long =
    if (offset <= base) 0
    else
      try {
        val channel = FileChannel.open(index, StandardOpenOption.READ)
        try search(channel, offset - base)
        finally channel.close()
      } catch { case _: NoSuchFileException => 0 }

  private def search(channel: FileChannel, relative: Long): Long = {
    var low = 0 // the entries before it are all at or below `relative`
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

  /** A zero entry was never written: it counts as past every other. */
  private def isWanted(entries: ByteBuffer, at: Int, relative: Long): Boolean =
    entries.limit() - at >= EntryBytes && entries.getLong(at) != 0 && entries.getInt(at) <= relative
}
