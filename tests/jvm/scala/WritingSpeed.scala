package sparklog.probe

import java.io.{DataInputStream, DataOutputStream}
import java.lang.management.ManagementFactory
import java.nio.ByteBuffer

import org.apache.spark.unsafe.Platform

import sparklog.format._

/** How long rows take to become batches, beside what can't be saved: copy, CRC, codec. */
object WritingSpeed extends Operations {
  private val cpu = ManagementFactory.getThreadMXBean

  override def operations: Map[String, Operation] = Map("write speed" -> measure)

  /**
   * codec, batch bytes, rounds (i32), then (key, value)*. Answers with the plain bytes of all rows
   * and the nanoseconds of CPU, medians of the rounds, of: builder, copy of the plain batches, CRC
   * of the batches written, codec alone (i64).
   */
  private def measure(in: DataInputStream, out: DataOutputStream): Unit = {
    val compressor = Compressor(Codec.named(textFrom(in)), None)
    val batchBytes = in.readInt()
    val rounds = in.readInt()
    val rows = new Rows(in.readAllBytes())
    val builder = new BatchBuilder(compressor, batchBytes, Int.MaxValue)
    val plain = Seq.newBuilder[Array[Byte]]
    rows.feed(new BatchBuilder(Compressor(Codec.Uncompressed, None), batchBytes, Int.MaxValue),
      made => plain += java.util.Arrays.copyOf(made.array, made.limit()))
    val batches = plain.result().toArray
    var written = 0L
    rows.feed(builder, made => written += made.remaining)
    val to = new Array[Byte](batches.map(_.length).max)
    val header = BatchHeader.HeaderBytes
    val crc = new Array[Byte]((written / batches.length).toInt)
    val bare = Compressor(compressor.codec, None)
    val candidates = Seq[() => Unit](
      () => rows.feed(builder, _ => ()),
      () => batches.foreach(batch => System.arraycopy(batch, 0, to, 0, batch.length)),
      () => batches.foreach(_ => Crc32c.of(crc, 0, crc.length)),
      () =>
        if (compressor.codec != Codec.Uncompressed) {
          batches.foreach(batch => bare.compress(batch, header, batch.length - header, 0))
        }
    )
    val took = Array.fill(candidates.size)(Array.newBuilder[Long])
    for (_ <- 0 until rounds; (run, which) <- candidates.zipWithIndex) {
      val start = cpu.getCurrentThreadCpuTime
      run()
      took(which) += cpu.getCurrentThreadCpuTime - start
    }
    compressor.close()
    bare.close()
    out.writeLong(batches.map(_.length.toLong).sum)
    took.foreach(times => out.writeLong(times.result().sorted.apply(rounds / 2)))
  }

  private final class Rows(bytes: Array[Byte]) {
    private val places = {
      val found = Array.newBuilder[Int]
      val buffer = ByteBuffer.wrap(bytes)
      while (buffer.hasRemaining) {
        val size = buffer.getInt()
        found += size += buffer.position()
        buffer.position(buffer.position() + size)
      }
      found.result()
    }

    def feed(builder: BatchBuilder, made: ByteBuffer => Unit): Unit = {
      var row = 0
      while (row < places.length) {
        if (!append(builder, row)) {
          made(builder.close(row / 4))
          append(builder, row)
        }
        row += 4
      }
      made(builder.close(0))
    }

    private def append(builder: BatchBuilder, row: Int): Boolean = builder.append(
      1700000000000L + row, bytes, Platform.BYTE_ARRAY_OFFSET + places(row + 1), places(row),
      bytes, Platform.BYTE_ARRAY_OFFSET + places(row + 3), places(row + 2), null, 0)
  }
}
