package sparklog.probe

import java.io.{BufferedInputStream, BufferedOutputStream, ByteArrayInputStream}
import java.io.{ByteArrayOutputStream, DataInputStream, DataOutputStream, EOFException}
import java.io.{FileDescriptor, FileOutputStream}

/**
 * Operations that tests call by name. Each file here but this one has an object of the file's name
 * that extends it; probe.py lists them.
 */
trait Operations {
  type Operation = (DataInputStream, DataOutputStream) => Unit

  def operations: Map[String, Operation]

  /** A byte string as probe.py's `pack` writes it: its length (i32), then itself. */
  protected def bytesFrom(in: DataInputStream): Array[Byte] = {
    val bytes = new Array[Byte](in.readInt())
    in.readFully(bytes)
    bytes
  }

  protected def bytesTo(out: DataOutputStream, bytes: Array[Byte], at: Int, count: Int): Unit = {
    out.writeInt(count)
    if (count > 0) out.write(bytes, at, count)
  }

  protected def textFrom(in: DataInputStream): String = new String(bytesFrom(in), "UTF-8")
}

/**
 * Answers requests on stdin: a name and a payload, each after its length (i32), with a status (u8;
 * 0: done, 1: it threw) and the answer, or what was thrown, after its length (i32). Big-endian.
 */
object Probe {
  def main(objects: Array[String]): Unit = {
    val in = new DataInputStream(new BufferedInputStream(System.in, 1 << 16))
    val out = new DataOutputStream(
      new BufferedOutputStream(new FileOutputStream(FileDescriptor.out), 1 << 16))
    System.setOut(System.err) // what libraries print is no answer
    val named = objects.map(load).flatMap(_.operations)
    val operations = named.toMap
    assert(operations.size == named.length, s"two have one name: ${named.map(_._1).sorted.toSeq}")
    var open = true
    while (open) {
      try {
        val name = new String(in.readNBytes(in.readInt()), "UTF-8")
        val payload = in.readNBytes(in.readInt())
        val answer = new ByteArrayOutputStream
        val status =
          try {
            val data = new DataOutputStream(answer)
            operations(name)(new DataInputStream(new ByteArrayInputStream(payload)), data)
            0
          } catch {
            case e: Throwable =>
              answer.reset()
              answer.write(s"$e\n${e.getStackTrace.take(8).mkString("\n")}".getBytes("UTF-8"))
              1
          }
        out.writeByte(status)
        out.writeInt(answer.size)
        answer.writeTo(out)
        out.flush()
      } catch { case _: EOFException => open = false }
    }
  }

  private def load(name: String): Operations =
    Class.forName(s"sparklog.probe.$name$$").getField("MODULE$").get(null).asInstanceOf[Operations]
}
