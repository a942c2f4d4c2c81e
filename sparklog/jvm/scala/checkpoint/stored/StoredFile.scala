package sparklog.checkpoint.stored

import java.io.{ByteArrayOutputStream, IOException}
import java.nio.ByteBuffer
import java.nio.charset.StandardCharsets.UTF_8

import com.fasterxml.jackson.databind.ObjectMapper
import com.fasterxml.jackson.databind.node.ObjectNode

import sparklog.checkpoint.RecordBatch

/**
 * Where a file of the checkpoint is stored: a record batch of one record, with the path as key and
 * the content as value, at `position` of `obj`.
 */
final case class Location(obj: String, position: Long, batchBytes: Int)

/** A file that is stored: its location, its size and its timestamp (ms). */
final case class StoredFile(location: Location, length: Int, timestamp: Long)

/**
 * A change of a file, as an entry holds it.
 *
 * @param content the bytes, if the entry holds them; None for a reference
 * @param file where the content is; None for a deletion
 */
final case class Change(path: String, content: Option[Array[Byte]], file: Option[StoredFile]) {
  def isDeletion: Boolean = content.isEmpty && file.isEmpty
}

/**
 * The records of entries, indexes and packs. A record batch contains one record: the key is a path
 * relative to the checkpoint, and the base sequence is the kind of the value.
 */
object StoredFile {
  /** Kinds of records: the header of an object, a file's content, the location of its content. */
  val Header = 0
  val Content = 1
  val Reference = 2

  /** Larger files can't be stored, because a file is read and written as a whole. */
  val MaxBytes: Int = 1 << 30

  val mapper = new ObjectMapper

  /**
   * Pass each record of an object to `seen(position, size, record, value)`. Throws an IOException,
   * with the position, for bytes that are not a complete batch with a valid CRC.
   */
  private def walk(obj: String, bytes: Array[Byte])(
      seen: (Int, Int, RecordBatch, Array[Byte]) => Unit): Unit = {
    val buffer = ByteBuffer.wrap(bytes)
    var at = 0
    while (at < bytes.length) {
      val size = sizeAt(buffer, at).getOrElse(throw damaged(obj, at))
      val batch = RecordBatch.decode(buffer, at, size)
      val value =
        if (batch.isDeletion) null
        else bytes.slice(at + batch.valueAt, at + batch.valueAt + batch.valueLength)
      seen(at, size, batch, value)
      at += size
    }
  }

  /** Return the content of the file `path` in the bytes of its batch. */
  def content(path: String, location: Location, bytes: Array[Byte]): Array[Byte] = {
    val buffer = ByteBuffer.wrap(bytes)
    if (!sizeAt(buffer, 0).contains(bytes.length)) throw damaged(location.obj, location.position)
    val batch = RecordBatch.decode(buffer, 0, bytes.length)
    if (batch.key != path || batch.tag != Content) {
      throw swapped(s"${location.obj} at position ${location.position}", s"the file ${batch.key}")
    }
    bytes.slice(batch.valueAt, batch.valueAt + batch.valueLength)
  }

  private def sizeAt(buffer: ByteBuffer, at: Int): Option[Int] = {
    val left = buffer.limit() - at
    if (left < sparklog.format.BatchHeader.HeaderBytes) None
    else RecordBatch.sizeAt(buffer, at).filter { size =>
      size <= left && RecordBatch.isSound(buffer, at, size.toInt)
    }.map(_.toInt)
  }

  def damaged(obj: String, position: Long): IOException = new IOException(
    s"$obj is damaged at position $position: the bytes are not a complete record batch. Restore " +
      "the object from a copy or from an older version of the bucket")

  def swapped(place: String, found: String): IOException = new IOException(
    s"$place contains $found: objects of the checkpoint were swapped or copied. Restore the " +
      "object from a copy or from an older version of the bucket")

  def reference(file: StoredFile): Array[Byte] = {
    val fields = mapper.createObjectNode()
    fields.put("object", file.location.obj).put("position", file.location.position)
      .put("batchBytes", file.location.batchBytes).put("length", file.length)
    mapper.writeValueAsBytes(fields)
  }

  private def referred(value: Array[Byte], timestamp: Long): StoredFile = {
    val fields = mapper.readTree(value)
    StoredFile(
      Location(fields.path("object").asText, fields.path("position").asLong,
        fields.path("batchBytes").asInt),
      fields.path("length").asInt, timestamp)
  }

  /**
   * Return the header of an object, which is its first record, and the changes that follow. Throws
   * an IOException for damaged bytes, and for an object of another kind.
   */
  def read(obj: String, key: String, bytes: Array[Byte]): (ObjectNode, Seq[Change]) = {
    var header: Option[ObjectNode] = None
    val found = Seq.newBuilder[Change]
    walk(obj, bytes) { (at, size, batch, value) =>
      if (header.isDefined) found += change(obj, at, size, batch, value)
      else if (batch.key == key && batch.tag == Header) header = Some(parse(value))
      else throw swapped(obj, s"the record ${batch.key}")
    }
    val changes = found.result()
    if (!header.exists(_.path("files").asInt(-1) == changes.size)) {
      throw damaged(obj, bytes.length.toLong)
    }
    header.get -> changes
  }

  private def change(
      obj: String, at: Int, size: Int, batch: RecordBatch, value: Array[Byte]): Change =
    batch.tag match {
      case Content if value == null => Change(batch.key, None, None)
      case Content =>
        val file = StoredFile(Location(obj, at, size), value.length, batch.timestamp)
        Change(batch.key, Some(value), Some(file))
      case Reference => Change(batch.key, None, Some(referred(value, batch.timestamp)))
      case _ => throw damaged(obj, at)
    }

  private def parse(value: Array[Byte]): ObjectNode =
    mapper.readTree(value).asInstanceOf[ObjectNode]
}

/** Writes the records of an object one after the other. */
final class ObjectBuilder(obj: String, run: Long, timestamp: Long) {
  private val out = new ByteArrayOutputStream(4096)
  private var records = 0L

  /** Append a record; return its location. */
  def add(path: String, kind: Int, value: Array[Byte], timestampMs: Long = timestamp): Location = {
    val length = if (value == null) -1 else value.length
    val batch = RecordBatch.encode(
      records, run.toInt, timestampMs, path.getBytes(UTF_8), value, length, kind)
    val at = out.size
    out.write(batch.array, batch.arrayOffset + batch.position(), batch.remaining)
    records += 1
    Location(obj, at, out.size - at)
  }

  /** Append the header, before anything else; `files` changes follow. */
  def addHeader(key: String, fields: ObjectNode, files: Int): Unit = {
    add(key, StoredFile.Header, StoredFile.mapper.writeValueAsBytes(fields.put("files", files)))
    ()
  }

  /** Append a change. Return the change with the location of its content. */
  def add(change: Change): Change = change match {
    case Change(path, Some(content), _) =>
      val location = add(path, StoredFile.Content, content)
      change.copy(file = Some(StoredFile(location, content.length, timestamp)))
    case Change(path, None, Some(file)) =>
      add(path, StoredFile.Reference, StoredFile.reference(file), file.timestamp)
      change
    case Change(path, None, None) =>
      add(path, StoredFile.Content, null)
      change
  }

  def bytes: Array[Byte] = out.toByteArray
}
