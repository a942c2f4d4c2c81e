package sparklog.checkpoint

import java.io.{ByteArrayInputStream, ByteArrayOutputStream, EOFException, OutputStream}
import java.nio.ByteBuffer
import java.nio.file.Files

import org.apache.hadoop.fs.{FileAlreadyExistsException, Path, PositionedReadable, Seekable}

import sparklog.checkpoint.SparkFiles._

/**
 * Collects the bytes of a file in memory. A file above the limit is continued as a file of Spark's
 * own manager.
 */
private final class Collected(large: () => CancellableFSDataOutputStream) extends OutputStream {
  private object buffer extends ByteArrayOutputStream(1024) {
    def array: Array[Byte] = buf
  }
  var spilled: Option[CancellableFSDataOutputStream] = None

  override def write(byte: Int): Unit = write(Array(byte.toByte), 0, 1)

  override def write(bytes: Array[Byte], from: Int, length: Int): Unit = {
    if (spilled.isEmpty && buffer.size + length > Collected.MaxRecordBytes) {
      val out = large()
      spilled = Some(out)
      out.write(buffer.array, 0, buffer.size)
    }
    spilled match {
      case Some(out) => out.write(bytes, from, length)
      case None => buffer.write(bytes, from, length)
    }
  }

  def content: Array[Byte] = buffer.array
  def length: Int = buffer.size
}

private object Collected {
  /**
   * Larger files are not stored as records, because a record is read and written as a whole, in
   * memory.
   */
  val MaxRecordBytes: Int = 32 << 20
}

/**
 * A file that is being written. Closing the stream stores the file as a record; cancelling the
 * stream stores nothing.
 */
final class RecordOutput private (
    file: CheckpointFile, path: Path, overwrite: Boolean, caller: Caller, collected: Collected)
    extends CancellableFSDataOutputStream(collected) {
  def this(
      file: CheckpointFile, spark: CheckpointFileManager, path: Path, overwrite: Boolean,
      caller: Caller) =
    this(file, path, overwrite, caller,
      new Collected(() => {
        Files.createDirectories(file.local.getParent)
        spark.createAtomic(path, overwrite)
      }))

  private var done = false

  override def close(): Unit = synchronized {
    if (!done) {
      done = true
      Uninterruptible {
        if (!overwrite && file.isFile) {
          throw new FileAlreadyExistsException(s"the file $path exists already")
        }
        collected.spilled match {
          case None => file.write(collected.content, collected.length, overwrite, caller)
          case Some(out) =>
            out.close()
            // Spark does not sync the files that it writes. The older record is deleted only after
            // the file is durable, so that a power cut leaves one of the two.
            Durable.syncWritten(file.local)
            Durable.sync(file.local.getParent)
            file.partition.delete(Seq(file.key))
        }
      }
    }
  }

  override def cancel(): Unit = synchronized {
    if (!done) {
      done = true
      collected.spilled.foreach(_.cancel())
    }
  }
}

/** The content of a record as a Hadoop stream. */
final class RecordInput(content: ByteBuffer)
    extends ByteArrayInputStream(content.array, content.arrayOffset + content.position(),
      content.remaining)
    with Seekable with PositionedReadable {
  private val start = pos

  override def getPos: Long = pos - start

  override def seek(position: Long): Unit = {
    if (position < 0 || position > count - start) {
      throw new EOFException(
        s"position $position is outside of the file, which has ${count - start} bytes")
    }
    pos = start + position.toInt
  }

  override def seekToNewSource(position: Long): Boolean = false

  override def read(position: Long, bytes: Array[Byte], from: Int, length: Int): Int = {
    val left = count - start - position
    if (left <= 0) -1
    else {
      val some = math.min(length.toLong, left).toInt
      System.arraycopy(buf, start + position.toInt, bytes, from, some)
      some
    }
  }

  override def readFully(position: Long, bytes: Array[Byte], from: Int, length: Int): Unit =
    if (length > 0 && read(position, bytes, from, length) < length) {
      throw new EOFException(s"the file ends before position ${position + length}")
    }

  override def readFully(position: Long, bytes: Array[Byte]): Unit =
    readFully(position, bytes, 0, bytes.length)
}
