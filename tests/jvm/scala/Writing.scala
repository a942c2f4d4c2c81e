package sparklog.probe

import java.io.{DataInputStream, DataOutputStream, OutputStream}
import java.nio.ByteBuffer
import java.nio.file.{Files, Path}

import org.apache.spark.unsafe.Platform

import sparklog.format._

/** Rows become record batches; keys become partitions. */
object Writing extends Operations {
  override def operations: Map[String, Operation] = Map(
    // (key)*, each hashed where it lies, at whatever place: i32 each
    "murmur2" -> { (in, out) =>
      val rows = new Fields(in.readAllBytes())
      while (rows.hasRemaining) {
        val key = rows.next()
        out.writeInt(Murmur2.hash(key.base, key.offset, key.bytes))
      }
      rows.free()
    },
    // (partitions i32, key): the partition, i32
    "partition" -> { (in, out) =>
      val partitions = in.readInt()
      val key = bytesFrom(in)
      val at = Platform.BYTE_ARRAY_OFFSET.toLong
      out.writeInt(Murmur2.partition(key, at, key.length, partitions))
    },
    "build" -> build,
    "held" -> held,
    // codec, i32 times, bytes: KiB of this process before and after as many compressors did them
    "compressors" -> { (in, out) =>
      val codec = Codec.named(textFrom(in))
      val times = in.readInt()
      val bytes = bytesFrom(in)
      def run(): Unit = {
        val compressor = Compressor(codec, None)
        compressor.compress(bytes, 0, bytes.length, 0)
        compressor.close()
        assert(compressor.heldBytes == 0)
      }
      for (_ <- 0 until 20) run()
      out.writeLong(residentKb())
      for (_ <- 0 until times) run()
      out.writeLong(residentKb())
    }
  )

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
    val fields = new Fields(in.readAllBytes())
    try {
      feed(fields, batches, base, new DataOutputStream(OutputStream.nullOutputStream))
      batches.release()
      compressor.close()
      assert(batches.heldBytes == 0 && batches.count == 0 && batches.sizeBytes == 0)
      fields.rewind()
      feed(fields, batches, base, out)
    } finally {
      compressor.close()
      fields.free()
    }
  }

  private def feed(
      rows: Fields, batches: BatchBuilder, base: Long, out: DataOutputStream): Unit = {
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
        val key = rows.next()
        val value = rows.next()
        val count = rows.getInt()
        if (count >= 0) {
          headers.start(count)
          for (_ <- 0 until count) {
            val name = rows.next()
            val content = rows.next()
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

  private final class Field(val base: AnyRef, val offset: Long, val bytes: Int)

  /** Byte strings of a request, by turns where Spark has some: byte[], long[], off the heap. */
  private final class Fields(bytes: Array[Byte]) {
    private val buffer = ByteBuffer.wrap(bytes)
    private val longs = new Array[Long](bytes.length / 8 + 1)
    private val address = Platform.allocateMemory(bytes.length + 1)
    private var turn = 0
    Platform.copyMemory(
      bytes, Platform.BYTE_ARRAY_OFFSET, longs, Platform.LONG_ARRAY_OFFSET, bytes.length)
    Platform.copyMemory(bytes, Platform.BYTE_ARRAY_OFFSET, null, address, bytes.length)

    def hasRemaining: Boolean = buffer.hasRemaining
    def getInt(): Int = buffer.getInt()
    def getLong(): Long = buffer.getLong()
    def rewind(): Unit = buffer.rewind()
    def free(): Unit = Platform.freeMemory(address)

    /** The next one; of null -1 bytes. */
    def next(): Field = {
      val size = buffer.getInt()
      val at = buffer.position().toLong
      buffer.position(buffer.position() + math.max(size, 0))
      turn += 1
      if (size < 0) new Field(null, 0, size)
      else if (turn % 3 == 0) new Field(bytes, Platform.BYTE_ARRAY_OFFSET + at, size)
      else if (turn % 3 == 1) new Field(longs, Platform.LONG_ARRAY_OFFSET + at, size)
      else new Field(null, address + at, size)
    }
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

  private def residentKb(): Long = {
    val line = Files.readAllLines(Path.of("/proc/self/status")).stream
      .filter(_.startsWith("VmRSS")).findFirst.get
    line.replaceAll("[^0-9]", "").toLong
  }
}
