package sparklog.probe

import java.io.{DataInputStream, DataOutputStream}

import sparklog.format.{BatchHeader, Codec, CompressedDataException, Crc32c, Decompressor}
import sparklog.format.{RecordCursor, TooLarge, Utf8}

/** Batches in, records out. */
object Reading extends Operations {
  override def operations: Map[String, Operation] = Map(
    "decompress" -> decompress,
    "held when read" -> held,
    "records" -> records,
    "read speed" -> speed,
    "header keys" -> { (in, out) =>
      while (in.available > 0) {
        val bytes = bytesFrom(in)
        keyTo(out, bytes, 0, bytes.length)
      }
    }
  )

  /**
   * i32 most bytes, then (i32 codec, bytes)*: i32 0, size and CRC-32C of what comes out; or 1, 0,
   * 0: they are damaged; or 2, 0, 0: too much comes out.
   */
  private def decompress(in: DataInputStream, out: DataOutputStream): Unit = {
    val decompressor = new Decompressor(in.readInt())
    while (in.available > 0) {
      val codec = Codec.of(in.readInt())
      val bytes = bytesFrom(in)
      try {
        val count = decompressor(codec, bytes, 0, bytes.length)
        Seq(0, count, Crc32c.of(decompressor.buffer, 0, count)).foreach(out.writeInt)
      } catch {
        case _: TooLarge => Seq(2, 0, 0).foreach(out.writeInt)
        case _: CompressedDataException => Seq(1, 0, 0).foreach(out.writeInt)
      }
    }
    decompressor.release()
  }

  /** i32 codec, bytes: i64 bytes of memory that are kept after decompressing them, or failing. */
  private def held(in: DataInputStream, out: DataOutputStream): Unit = {
    val decompressor = new Decompressor(Int.MaxValue)
    val codec = Codec.of(in.readInt())
    val bytes = bytesFrom(in)
    try decompressor(codec, bytes, 0, bytes.length)
    catch { case _: CompressedDataException => }
    out.writeLong(decompressor.heldBytes)
    decompressor.release()
    assert(decompressor.heldBytes == 0)
  }

  /**
   * i64 first offset, i64 until, then (bytes)*, a batch each: (i32 status, records). A record:
   * i32 1, i64 offset, i64 microseconds, i32 type, key, value, headers; the last is followed by
   * i32 0. Bytes after their length or -1; headers after their number.
   */
  private def records(in: DataInputStream, out: DataOutputStream): Unit = {
    val cursor = new RecordCursor
    val header = new BatchHeader
    val (first, until) = (in.readLong(), in.readLong())
    while (in.available > 0) {
      val bytes = bytesFrom(in)
      var status = header.read(bytes, 0, bytes.length)
      if (status == BatchHeader.Sound) status = cursor.open(bytes, 0, header, first, until)
      out.writeInt(status)
      while (status == BatchHeader.Sound && cursor.next()) {
        out.writeInt(1)
        out.writeLong(cursor.offset)
        out.writeLong(cursor.timestampMicros)
        out.writeInt(cursor.timestampType)
        bytesTo(out, cursor.buffer, cursor.keyAt, cursor.keyBytes)
        bytesTo(out, cursor.buffer, cursor.valueAt, cursor.valueBytes)
        out.writeInt(cursor.headersCount)
        while (cursor.nextHeader()) {
          keyTo(out, cursor.buffer, cursor.headerKeyAt, cursor.headerKeyBytes)
          bytesTo(out, cursor.buffer, cursor.headerValueAt, cursor.headerValueBytes)
        }
      }
      out.writeInt(0)
    }
    cursor.release()
  }

  private def keyTo(out: DataOutputStream, bytes: Array[Byte], at: Int, count: Int): Unit =
    if (Utf8.isWellFormed(bytes, at, count)) bytesTo(out, bytes, at, count)
    else {
      val text = Utf8.mended(bytes, at, count)
      bytesTo(out, text, 0, text.length)
    }

  /**
   * i32 seconds, bytes of whole batches: (bytes of it read once)
   * f64 nanoseconds a pass of: CRC alone; headers with CRC; that and a look at the records; that
   * and stepping through them. Then i64 records.
   */
  private def speed(in: DataInputStream, out: DataOutputStream): Unit = {
    val seconds = in.readInt()
    val bytes = bytesFrom(in)
    val cursor = new RecordCursor
    val header = new BatchHeader
    var sum = 0L
    def walk(each: Int => Unit): Unit = {
      var at = 0
      while (at < bytes.length) {
        val status = header.read(bytes, at, bytes.length)
        assert(status == BatchHeader.Sound, BatchHeader.describe(status))
        each(at)
        at += header.sizeBytes
      }
    }
    def parse(at: Int): Unit = {
      assert(cursor.open(bytes, at, header, 0, Long.MaxValue) == BatchHeader.Sound)
      while (cursor.next()) {
        sum += cursor.offset + cursor.timestampMicros + cursor.keyAt + cursor.keyBytes +
          cursor.valueAt + cursor.valueBytes + cursor.headersCount
        count += 1
      }
    }
    out.writeDouble(best(seconds)(sum += Crc32c.of(bytes, 0, bytes.length)))
    out.writeDouble(best(seconds)(walk(_ => ())))
    out.writeDouble(best(seconds)(walk(at =>
          assert(cursor.open(bytes, at, header, 0, Long.MaxValue) == BatchHeader.Sound))))
    out.writeDouble(best(seconds)(walk(parse)))
    count = 0
    walk(parse)
    out.writeLong(count)
    out.writeLong(sum)
  }

  private var count = 0L
  private val threads = java.lang.management.ManagementFactory.getThreadMXBean

  /** Processor time of the quickest of many passes, after as long a time of warming up. */
  private def best(seconds: Int)(pass: => Unit): Double = {
    def run(): Seq[Long] = {
      val end = System.nanoTime() + seconds * 500000000L
      val took = Seq.newBuilder[Long]
      while (System.nanoTime() < end) {
        val began = threads.getCurrentThreadCpuTime
        pass
        took += threads.getCurrentThreadCpuTime - began
      }
      took.result()
    }
    run()
    run().min.toDouble
  }
}
