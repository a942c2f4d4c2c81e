package sparklog.probe

import java.io.DataInputStream
import java.util.Random

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{GenericInternalRow, UnsafeProjection}
import org.apache.spark.sql.catalyst.expressions.codegen.UnsafeRowWriter
import org.apache.spark.sql.catalyst.util.GenericArrayData
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

import sparklog.sink.{StageError, StagingDataWriter}

/** Rows become chunks. */
object Staging extends Operations {
  override def operations: Map[String, Operation] = Map(
    // plan, schema (JSON), task (i32), whether rows are UnsafeRows (u8), rows:
    // a packed table after 0 (u8); after 1 the error's class and its text
    "stage" -> { (in, out) =>
      val plan = bytesFrom(in)
      val schema = DataType.fromJson(textFrom(in)).asInstanceOf[StructType]
      val task = in.readInt()
      val project =
        if (in.readBoolean()) UnsafeProjection.create(schema) else identity[InternalRow] _
      try {
        val writer = new StagingDataWriter(plan, schema, task)
        val staged =
          try {
            while (in.available > 0) writer.write(project(rowFrom(in, schema)))
            writer.stage()
          } catch {
            case e: Throwable =>
              writer.abort()
              throw e
          } finally writer.close()
        out.writeByte(0)
        out.write(staged)
      } catch {
        case e: StageError =>
          out.writeByte(1)
          Seq(e.kind, e.getMessage, String.valueOf(e.path), e.toString).foreach { text =>
            val bytes = text.getBytes("UTF-8")
            bytesTo(out, bytes, 0, bytes.length)
          }
      }
    },
    // plan, rows (i32), partitions that they go to by turns, most bytes of a value: a packed table
    "stageMany" -> { (in, out) =>
      val writer = new StagingDataWriter(bytesFrom(in), many, 0)
      val count = in.readInt()
      val partitions = in.readInt()
      val random = new Random(1)
      val value = new Array[Byte](in.readInt())
      random.nextBytes(value)
      val row = new UnsafeRowWriter(many.length)
      for (number <- 0 until count) {
        row.reset()
        row.write(0, number % partitions / topics)
        row.write(1, value, 0, 1 + random.nextInt(value.length))
        row.write(2, UTF8String.fromString(s"t${number % partitions % topics}"))
        writer.write(row.getRow)
      }
      out.write(writer.stage())
      writer.close()
    }
  )

  private val topics = 10
  private lazy val many = new StructType()
    .add("partition", IntegerType).add("value", BinaryType).add("topic", StringType)

  /** A column after the other, each after a byte that is 0 for null. */
  private def rowFrom(in: DataInputStream, schema: StructType): InternalRow =
    new GenericInternalRow(schema.fields.map(field => valueFrom(in, field.dataType)))

  private def valueFrom(in: DataInputStream, kind: DataType): Any =
    if (!in.readBoolean()) null
    else kind match {
      case StringType => UTF8String.fromBytes(bytesFrom(in))
      case BinaryType => bytesFrom(in)
      case IntegerType => in.readInt()
      case TimestampType | LongType => in.readLong()
      case ArrayType(element, _) =>
        new GenericArrayData(Array.fill[Any](in.readInt())(valueFrom(in, element)))
      case struct: StructType => rowFrom(in, struct)
      case other => throw new IllegalArgumentException(s"no rows of ${other.sql} here")
    }
}
