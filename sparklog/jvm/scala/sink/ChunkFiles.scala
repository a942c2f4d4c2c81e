package sparklog.sink

import java.io.IOException
import java.nio.ByteBuffer
import java.nio.channels.FileChannel
import java.nio.file.{Files, Path, Paths}
import java.nio.file.StandardOpenOption.{CREATE_NEW, WRITE}
import java.nio.file.attribute.PosixFilePermissions
import java.util.{ArrayList, LinkedHashMap, Set, UUID}

/**
 * Stores chunks for a log dir, as sparklog/logdir/staging.py does: each large chunk in a file
 * beside the directory of its partition; small chunks in memory if there are few.
 *
 * Memory: `heldBytesMax` of chunks that are not large yet; before the limit is exceeded, the
 * largest chunks are written to files. Descriptors: OpenMax.
 *
 * @param label prefix of the names of the files, by which abandoned files are found and deleted
 * @param inlineBytes maximum size of all chunks that are still in memory at the end
 */
private[sink] final class ChunkFiles(
    plan: StagePlan, label: String, inlineBytes: Long, heldBytesMax: Long) extends ChunkPlace {
  import ChunkFiles._

  private val prefix = plan.place.get("prefix").asText
  private val fileBytes = plan.place.get("file_bytes").asLong
  private val refusals = new Refusals(plan.place)
  private val growing = new ArrayList[GrowingChunk] // with batches in memory
  private val made = new ArrayList[Path]
  private val open = new OpenChunkFiles(OpenMax)
  private var held = 0L

  override def grow(chunk: GrowingChunk, batches: ByteBuffer): Boolean = {
    if (chunk.file != null || chunk.sizeBytes >= fileBytes) {
      spill(chunk)
      write(chunk.file, batches)
    } else {
      if (chunk.heldBytes == 0) growing.add(chunk)
      held += batches.remaining
      chunk.keep(batches)
      if (held > heldBytesMax) spillLargest()
    }
    false
  }

  /** Write the batches of a chunk in memory to the chunk's file. */
  private def spill(chunk: GrowingChunk): Unit = {
    if (chunk.file == null) chunk.file = create(chunk.topic.directoryOf(chunk.partition))
    held -= chunk.heldBytes
    chunk.takeParts().foreach(part => write(chunk.file, ByteBuffer.wrap(part)))
  }

  /** Write the larger half of the batches in memory to files. */
  private def spillLargest(): Unit = {
    growing.removeIf(_.heldBytes == 0)
    growing.sort((a, b) => java.lang.Long.compare(b.heldBytes, a.heldBytes))
    var i = 0
    while (i < growing.size && held > heldBytesMax / 2) {
      spill(growing.get(i))
      i += 1
    }
    growing.removeIf(_.heldBytes == 0)
  }

  override def close(chunk: GrowingChunk): Chunk =
    if (chunk.file == null) chunk.inMemory()
    else {
      val file = chunk.file
      var boot: String = null
      // Such a file becomes a segment itself, so it must be durable; a smaller chunk is copied by
      // the commit. A power cut after the sync is noticed by another boot id.
      if (chunk.sizeBytes >= chunk.topic.framing.segmentBytesMin) {
        doing("sync", file.path) { open.channel(file).force(false) }
        boot = BootId.get
      }
      doing("write", file.path) { open.close(file) }
      chunk.inFile(file.path.toString, boot)
    }

  override def finish(chunks: ArrayList[Chunk]): ArrayList[Chunk] = {
    var inline = 0L
    chunks.forEach(chunk => if (chunk.isInMemory) inline += chunk.sizeBytes)
    if (inline > inlineBytes) {
      chunks.replaceAll(chunk => if (chunk.isInMemory) moved(chunk) else chunk)
    }
    chunks
  }

  private def moved(chunk: Chunk): Chunk = {
    val file = create(chunk.topic.directoryOf(chunk.partition))
    chunk.parts.foreach(part => write(file, ByteBuffer.wrap(part)))
    doing("write", file.path) { open.close(file) }
    chunk.movedTo(file.path.toString)
  }

  private def create(directory: String): ChunkFile = {
    val name = s"$prefix$label-${UUID.randomUUID().toString.replace("-", "")}"
    val file = new ChunkFile(Paths.get(directory, name))
    made.add(file.path)
    doing("open", file.path) { open.create(file) }
    file
  }

  private def write(file: ChunkFile, data: ByteBuffer): Unit = doing("write", file.path) {
    val end = data.limit()
    while (data.position() < end) {
      // A channel allocates as much native memory as a single write has bytes, and keeps it.
      data.limit(math.min(end, data.position() + WriteBytes))
      val channel = open.channel(file)
      while (data.hasRemaining) file.written += channel.write(data, file.written)
    }
  }

  private def doing(verb: String, path: Path)(work: => Unit): Unit =
    try work
    catch { case e: IOException => throw refusals(verb, path.toString, e) }

  override def discard(): Unit = {
    open.closeAll()
    made.forEach { path =>
      try Files.deleteIfExists(path)
      catch { case _: IOException => } // the service deletes abandoned files later
    }
  }
}

private object ChunkFiles {
  val OpenMax = 32
  val WriteBytes: Int = 1 << 20
}

/** The file of a chunk. `written`: the number of bytes written so far. */
private[sink] final class ChunkFile(val path: Path) {
  var written = 0L
}

/**
 * The open channels of files that are written alternately. Above `most` files the least recently
 * used channel is closed.
 */
private final class OpenChunkFiles(most: Int) {
  private val channels = new LinkedHashMap[ChunkFile, FileChannel](16, 0.75f, true)

  def create(file: ChunkFile): Unit = {
    val own = PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rw-r--r--"))
    add(file, FileChannel.open(file.path, Set.of(CREATE_NEW, WRITE), own))
  }

  def channel(file: ChunkFile): FileChannel = {
    val known = channels.get(file)
    if (known != null) known else add(file, FileChannel.open(file.path, WRITE))
  }

  private def add(file: ChunkFile, channel: FileChannel): FileChannel = {
    channels.put(file, channel)
    if (channels.size > most) {
      val oldest = channels.entrySet.iterator
      val other = oldest.next().getValue
      oldest.remove()
      other.close()
    }
    channel
  }

  def close(file: ChunkFile): Unit = {
    val known = channels.remove(file)
    if (known != null) known.close()
  }

  def closeAll(): Unit = {
    channels.values.forEach(channel =>
      try channel.close()
      catch { case _: IOException => })
    channels.clear()
  }
}

/** The id of the current boot of the host, which changes with a power cut. */
private[sink] object BootId {
  lazy val get: String =
    Files.readString(Paths.get("/proc/sys/kernel/random/boot_id")).trim
}
