package sparklog.probe

import java.io.{DataInputStream, DataOutputStream}
import java.nio.file.{Files, Path}

import sparklog.checkpoint.{DamagedRecord, Durable, Flush, LogDir, RecordBatch, Settings}

/** The batches of checkpoints as logs. */
object Checkpoints extends Operations {
  override def operations: Map[String, Operation] =
    Map("checkpoint batch" -> batch, "damaged records" -> damaged, "checkpoint writes" -> writes)

  /**
   * root: what is traced for the kernel's sake, each behind the directory marks/NAME. Segments end
   * after a kilobyte.
   */
  private def writes(in: DataInputStream, out: DataOutputStream): Unit = {
    val root = Path.of(new String(bytesFrom(in), "UTF-8"))
    def mark(name: String): Unit = Files.createDirectories(root.resolve(s"marks/$name"))
    mark("jvm-create")
    val checkpoint = root.resolve("checkpoint")
    Files.createDirectories(checkpoint)
    val logDir = LogDir.create(checkpoint, Settings(Flush.of("commit", 0), 1000, 10000, 100))
    val offsets = logDir.partition("offsets")
    mark("jvm-first-write")
    offsets.put("0", new Array[Byte](800), 800, overwrite = false)
    mark("jvm-write")
    offsets.put("1", new Array[Byte](100), 100, overwrite = false)
    mark("jvm-roll")
    offsets.put("2", new Array[Byte](800), 800, overwrite = false)
    mark("jvm-delete")
    offsets.delete(Seq("0"))
    mark("jvm-clean")
    offsets.put("3", new Array[Byte](200 << 10), 200 << 10, overwrite = false)
    offsets.put("4", new Array[Byte](100), 100, overwrite = false)
    offsets.delete(Seq("3"))
    mark("jvm-replace")
    Durable.write(root.resolve("small"), Array[Byte](1), root.resolve("small.next"))
    mark("jvm-directory")
    Durable.createDirectory(root.resolve("a/b"))
    mark("jvm-snapshot")
    val snapshot = Files.write(root.resolve("1.zip"), Array[Byte](1))
    Files.write(root.resolve(".1.zip.crc"), Array[Byte](1))
    Durable.syncWritten(snapshot)
    mark("jvm-end")
  }

  /** i64 offset, i32 epoch, i64 ms, key, value: the batch; sound and decoded as it was, too. */
  private def batch(in: DataInputStream, out: DataOutputStream): Unit = {
    val (offset, epoch, timestamp) = (in.readLong(), in.readInt(), in.readLong())
    val key = bytesFrom(in)
    val length = in.readInt()
    val value = if (length < 0) null else in.readNBytes(length)
    val made = RecordBatch.encode(offset, epoch, timestamp, key, value, length, RecordBatch.NoTag)
    val size = made.remaining
    assert(RecordBatch.sizeAt(made, 0).contains(size.toLong) && RecordBatch.isSound(made, 0, size))
    val back = RecordBatch.decode(made, 0, size)
    assert((back.offset, back.timestamp, back.valueLength) == ((offset, timestamp, length)))
    assert(back.key == new String(key, "UTF-8"))
    assert(length <= 0 || made.array.slice(back.valueAt, back.valueAt + length).sameElements(value))
    out.write(made.array, 0, size)
  }

  /** (i64 first, i64 end, bytes)*: how many records, -1 if none are known; position, key, u8 */
  private def damaged(in: DataInputStream, out: DataOutputStream): Unit =
    while (in.available > 0) {
      val (first, end) = (in.readLong(), in.readLong())
      val found = DamagedRecord.examine(bytesFrom(in), 0, first, end, RecordBatch.NoTag)
      out.writeInt(found.fold(-1)(_.size))
      for (record <- found.getOrElse(Nil)) {
        out.writeLong(record.position)
        val key = record.key.getBytes("UTF-8")
        bytesTo(out, key, 0, key.length)
        out.writeBoolean(record.isDeletion)
      }
    }
}
