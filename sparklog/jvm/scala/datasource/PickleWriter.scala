package sparklog.datasource

import java.io.{ByteArrayOutputStream, DataOutputStream}
import java.nio.charset.StandardCharsets.UTF_8

/**
 * Writes Python pickles, protocol 4, for values returned to Python: calls of functions by name,
 * tuples, bytes and numbers. Source: pickletools.py (Python 3.11).
 */
private[datasource] final class PickleWriter {
  private val all = new ByteArrayOutputStream
  private val out = new DataOutputStream(all)
  out.writeByte(0x80) // PROTO
  out.writeByte(4)

  /** Write a call of `module.name` with the arguments that `arguments` writes. */
  def call(module: String, name: String)(arguments: => Unit): Unit = {
    out.writeByte('c') // GLOBAL
    out.write(s"$module\n$name\n".getBytes(UTF_8))
    tuple(arguments)
    out.writeByte('R') // REDUCE
  }

  /** Write a tuple of the values that `items` writes. */
  def tuple(items: => Unit): Unit = {
    out.writeByte('(') // MARK
    items
    out.writeByte('t') // TUPLE
  }

  def bytes(value: Array[Byte]): Unit = {
    out.writeByte('B') // BINBYTES
    out.writeInt(Integer.reverseBytes(value.length))
    out.write(value)
  }

  def text(value: String): Unit = {
    val raw = value.getBytes(UTF_8)
    out.writeByte('X') // BINUNICODE
    out.writeInt(Integer.reverseBytes(raw.length))
    out.write(raw)
  }

  def number(value: Long): Unit = {
    out.writeByte(0x8a) // LONG1
    out.writeByte(8)
    out.writeLong(java.lang.Long.reverseBytes(value))
  }

  /** Return the complete pickle. */
  def finish(): Array[Byte] = {
    out.writeByte('.') // STOP
    all.toByteArray
  }
}
