package sparklog.probe

import java.io.DataOutputStream
import java.nio.charset.StandardCharsets.UTF_8

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.read.PartitionReader
import org.apache.spark.sql.types._

import sparklog.source.{LogPartitionReader, ReadPlan}

/** Segments become rows. */
object Segments extends Operations {
  private val types = Map[String, DataType](
    "key" -> BinaryType,
    "value" -> BinaryType,
    "topic" -> StringType,
    "partition" -> IntegerType,
    "offset" -> LongType,
    "timestamp" -> TimestampType,
    "timestampType" -> IntegerType,
    "headers" -> ArrayType(StructType.fromDDL("key STRING, value BINARY"))
  )

  private val IsRow = 1
  private val IsPythons = 2

  /** What "open" opened, to be read bit by bit. */
  private var reader: PartitionReader[InternalRow] = Nothing
  private var schema: StructType = _
  private var handovers = Seq.empty[(Int, Long)]

  override def operations: Map[String, Operation] = Map(
    // plan, columns: nothing
    "open" -> { (in, out) =>
      handovers = Seq.empty
      val plan = ReadPlan.parse(bytesFrom(in))
      schema = schemaOf(textFrom(in))
      reader = new LogPartitionReader(plan, schema,
        (piece, at) => {
          handovers :+= ((piece, at))
          Nothing
        })
    },
    // i32 most rows: events, a row each (u8 1, its columns), or where Python reads (u8 2, i32
    // piece, i64 offset), of which nothing comes here
    "take" -> { (in, out) =>
      var left = in.readInt()
      while (left > 0) {
        left -= 1
        val more = reader.next()
        handovers.foreach { case (piece, at) =>
          out.writeByte(IsPythons)
          out.writeInt(piece)
          out.writeLong(at)
        }
        handovers = Seq.empty
        if (more) writeRow(out, reader.get()) else left = 0
      }
    },
    // interrupts the thread that reads: what comes of it
    "interrupt" -> { (in, out) =>
      Thread.currentThread.interrupt()
      try {
        while (reader.next()) {}
        out.writeUTF("nothing")
      } catch {
        case e: Throwable => out.writeUTF(e.getClass.getSimpleName)
      } finally Thread.interrupted()
      out.writeInt(handovers.size)
    },
    // what is held after "open" is closed: paths of open files, one a line
    "close" -> { (in, out) =>
      reader.close()
      assert(!reader.next())
      reader = Nothing
      Option(new java.io.File("/proc/self/fd").listFiles).toSeq.flatten.foreach { entry =>
        try out.writeBytes(s"${java.nio.file.Files.readSymbolicLink(entry.toPath)}\n")
        catch { case _: java.nio.file.NoSuchFileException => }
      }
    },
    // plan, columns, rounds: (i64 rows, i64 ns) of each
    "time" -> { (in, out) =>
      val json = bytesFrom(in)
      val schema = schemaOf(textFrom(in))
      (0 until in.readInt()).foreach { _ =>
        val start = System.nanoTime()
        out.writeLong(sum(json, schema))
        out.writeLong(System.nanoTime() - start)
      }
    }
  )

  private def schemaOf(columns: String): StructType =
    StructType(columns.split(",").filter(_.nonEmpty).map(name => StructField(name, types(name))))

  private object Nothing extends PartitionReader[InternalRow] {
    override def next(): Boolean = false
    override def get(): InternalRow = throw new NoSuchElementException
    override def close(): Unit = ()
  }

  private def writeRow(out: DataOutputStream, given: InternalRow): Unit = {
    out.writeByte(IsRow)
    // Each column is asked for twice, as Spark may; a copy is what the row was.
    val nowhere = new DataOutputStream(java.io.OutputStream.nullOutputStream)
    schema.indices.foreach(at => writeColumn(nowhere, given, at, schema(at).dataType))
    copies = !copies
    val row = if (copies) given.copy() else given
    schema.indices.foreach(at => writeColumn(out, row, at, schema(at).dataType))
  }

  private var copies = false

  /** Read all rows as compiled code would, and count them. */
  private def sum(json: Array[Byte], schema: StructType): Long = {
    val reader = new LogPartitionReader(
      ReadPlan.parse(json), schema, (piece, at) => throw new AssertionError(s"$piece at $at"))
    val kinds = schema.map(_.dataType).map {
      case BinaryType => 0
      case StringType => 1
      case IntegerType => 2
      case LongType | TimestampType => 3
      case _ => 4
    }.toArray
    var rows = 0L
    var held = 0L
    try {
      while (reader.next()) {
        val row = reader.get()
        rows += 1
        var at = 0
        while (at < kinds.length) {
          if (!row.isNullAt(at)) kinds(at) match {
            case 0 => held += row.getBinary(at).length
            case 1 => held += row.getUTF8String(at).numBytes
            case 2 => held += row.getInt(at)
            case 3 => held += row.getLong(at)
            case _ => held += row.getArray(at).numElements()
          }
          at += 1
        }
      }
    } finally reader.close()
    if (held == 42) System.err.println("so that it is used")
    rows
  }

  private def writeColumn(out: DataOutputStream, row: InternalRow, at: Int, kind: DataType): Unit =
    kind match {
      case BinaryType => writeBytes(out, if (row.isNullAt(at)) null else row.getBinary(at))
      case StringType => writeBytes(out, row.getUTF8String(at).getBytes)
      case IntegerType => out.writeInt(row.getInt(at))
      case LongType | TimestampType => out.writeLong(row.getLong(at))
      case _ =>
        val headers = row.getArray(at)
        out.writeInt(headers.numElements())
        (0 until headers.numElements()).foreach { n =>
          val header = headers.getStruct(n, 2)
          writeBytes(out, header.getUTF8String(0).toString.getBytes(UTF_8))
          writeBytes(out, if (header.isNullAt(1)) null else header.getBinary(1))
        }
    }

  private def writeBytes(out: DataOutputStream, bytes: Array[Byte]): Unit =
    if (bytes == null) out.writeInt(-1) else bytesTo(out, bytes, 0, bytes.length)
}
