package sparklog.probe

import java.io.{DataInputStream, DataOutputStream}
import java.nio.ByteBuffer

import org.apache.spark.unsafe.Platform
import sparklog.format._

/** Rows become record batches; keys become partitions. */
object Writing extends Operations {
  override def operations: Map[String, Operation] = Map(
    // (key)*, each hashed where it lies, at whatever place: i32 each
    "murmur2" -> { (in, out) =>
      val bytes = in.readAllBytes()
      val buffer = ByteBuffer.wrap(bytes)
      while (buffer.hasRemaining) {
        val size = buffer.getInt()
        val at = Platform.BYTE_ARRAY_OFFSET + buffer.position()
        out.writeInt(Murmur2.hash(bytes, at.toLong, size))
        buffer.position(buffer.position() + size)
      }
    },
    // (partitions i32, key): the partition, i32
    "partition" -> { (in, out) =>
      val partitions = in.readInt()
      val key = bytesFrom(in)
      val at = Platform.BYTE_ARRAY_OFFSET.toLong
      out.writeInt(Murmur2.partition(key, at, key.length, partitions))
    },
    "build" -> build,
    "held" -> held)

  /**
   * codec, level (i32, the least: none), batch bytes, max message bytes (i32), base offset (i64),
   * then rows: timestamp (i64), key, value (length -1: null), i32 headers (-1: the builder gets no
   * bytes), of each key and value. All is built twice, by one builder; the second time counts.
   *
   * Answers with (bytes, records, bytes before compression, smallest and largest timestamp as i64)
   * for each close; with -1 (i32), the row (i32) and the size (i64) if a row is too large.
   */
  private def build(in: DataInputStream, out: DataOutputStream): Unit = {
    val codec = Codec.named(textFrom(in))
    val level = Some(in.readInt()).filter(_ != Int.MinValue)
    val compressor = Compressor(codec, level)
    val batches = new BatchBuilder(compressor, in.readInt(), in.readInt())
    val base = in.readLong()
    val rows = in.readAllBytes()
    try {
      feed(ByteBuffer.wrap(rows), batches, base, new DataOutputStream(
        java.io.OutputStream.nullOutputStream))
      batches.release()
      assert(batches.heldBytes == 0 && batches.count == 0 && batches.sizeBytes == 0)
      feed(ByteBuffer.wrap(rows), batches, base, out)
    } finally compressor.close()
  }

  private def feed(
      rows: ByteBuffer, batches: BatchBuilder, base: Long, out: DataOutputStream): Unit = {
    val headers = new HeadersBuffer
    var done = 0
    def close(): Unit = {
      val count = batches.count
      val plain = batches.sizeBytes
      val made = batches.close(base + done)
      assert(batches.count == 0 && batches.sizeBytes == 0)
      bytesTo(out, made.array, made.arrayOffset + made.position(), made.remaining)
      Seq[Long](count, plain, batches.minTimestamp, batches.maxTimestamp).foreach(out.writeLong)
      done += count
    }
    try {
      while (rows.hasRemaining) {
        val timestamp = rows.getLong()
        val key = new Field(rows)
        val value = new Field(rows)
        val count = rows.getInt()
        if (count >= 0) {
          headers.start(count)
          for (_ <- 0 until count) {
            val name = new Field(rows)
            val content = new Field(rows)
            headers.add(
              name.base, name.offset, name.bytes, content.base, content.offset, content.bytes)
          }
        }
        val headersBytes = if (count < 0) 0 else headers.sizeBytes
        def append() = batches.append(timestamp, key.base, key.offset, key.bytes, value.base,
          value.offset, value.bytes, headers.bytes, headersBytes)
        if (!append()) {
          close()
          assert(append())
        }
      }
      if (batches.count > 0) close()
    } catch {
      case e: RecordTooLarge =>
        out.writeInt(-1)
        out.writeInt(done + e.index)
        out.writeLong(e.sizeBytes)
    }
  }

  /** A byte string where it lies in the request. */
  private final class Field(rows: ByteBuffer) {
    val bytes: Int = rows.getInt()
    val base: AnyRef = if (bytes < 0) null else rows.array
    val offset: Long = if (bytes < 0) 0 else Platform.BYTE_ARRAY_OFFSET + rows.position()
    if (bytes > 0) rows.position(rows.position() + bytes)
  }

  /** (batch bytes, max message bytes, (bytes of a value)*: i32): heldBytes after each close. */
  private def held(in: DataInputStream, out: DataOutputStream): Unit = {
    val batches = new BatchBuilder(Compressor(Codec.Uncompressed, None), in.readInt(), in.readInt())
    out.writeLong(batches.heldBytes)
    while (in.available > 0) {
      val value = new Array[Byte](in.readInt())
      assert(batches.append(0, null, 0, -1, value, Platform.BYTE_ARRAY_OFFSET.toLong, value.length,
        null, 0))
      batches.close(0)
      out.writeLong(batches.heldBytes)
    }
  }
}
