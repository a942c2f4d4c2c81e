package sparklog.probe

import java.io.{DataInputStream, DataOutputStream}

import sparklog.checkpoint.{DamagedRecord, RecordBatch}

/** The batches of checkpoints as logs. */
object Checkpoints extends Operations {
  override def operations: Map[String, Operation] =
    Map("checkpoint batch" -> batch, "damaged records" -> damaged)

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
