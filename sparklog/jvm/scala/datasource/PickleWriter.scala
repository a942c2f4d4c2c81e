package sparklog.datasource

import java.io.{ByteArrayOutputStream, DataOutputStream}
import java.nio.charset.StandardCharsets.UTF_8

/**
 * Python's pickles, protocol 4, of what goes back to it: calls of functions by name, of tuples,
 * bytes and numbers. Source: pickletools.py (Python 3.11).
 */
private[datasource] final class PickleWriter {
  private val all = new ByteArrayOutputStream
  private val out = new DataOutputStream(all)
  out.writeByte(0x80) // PROTO
  out.writeByte(4)

  /** What `module.name` gives for the arguments that are written. */
  def call(module: String, name: String)(arguments: => Unit): Unit = {
    out.writeByte('c') // GLOBAL
    out.write(s"$module\n$name\n".getBytes(UTF_8))
    tuple(arguments)
    out.writeByte('R') // REDUCE
  }

  /** A tuple of the values that `items` writes. */
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

  /** The whole pickle. */
  def finish(): Array[Byte] = {
    out.writeByte('.') // STOP
    all.toByteArray
  }
}
