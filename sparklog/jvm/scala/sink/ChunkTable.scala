package sparklog.sink

import java.io.{ByteArrayInputStream, ByteArrayOutputStream}
import java.nio.{ByteBuffer, ByteOrder}
import java.util.{ArrayList, HashMap, LinkedHashMap}
import java.util.zip.{CRC32C, Deflater, DeflaterOutputStream, InflaterInputStream}

import com.fasterxml.jackson.databind.ObjectMapper

import sparklog.format.Arrays

/**
 * Packs chunks as bytes, which sparklog/storage/chunk_table.py unpacks and whose layout is
 * described there.
 */
private[sink] object ChunkTable {
  private val InMemory = -1 // 2^32 - 1, unsigned
  private val RowBytes = 3 * 4 + 5 * 8 + 1 + 8
  private val Level = 1

  /**
   * Return the whole table, after the bytes of `head`.
   *
   * Cost: a copy of the chunks in memory. Throws an OutOfMemoryError above 2 GiB.
   */
  def pack(chunks: ArrayList[Chunk], head: Array[Byte]): Array[Byte] =
    joined(head +: columns(chunks), chunks)

  /** Return the table without the bytes of the chunks, after the bytes of `head`. */
  def packWithoutData(chunks: ArrayList[Chunk], head: Array[Byte]): Array[Byte] =
    joined(head +: columns(chunks), new ArrayList)

  /** Return the files of the chunks in a packed table, which begins at `at`. */
  def paths(packed: Array[Byte], at: Int): Seq[String] = {
    val header = ByteBuffer.wrap(packed).order(ByteOrder.LITTLE_ENDIAN).getInt(at)
    val json = new InflaterInputStream(new ByteArrayInputStream(packed, at + 4, header))
    val places = new ObjectMapper().readTree(json).get("places")
    Seq.tabulate(places.size)(places.get(_).get(0).asText)
  }

  /** Return the concatenated bytes of the chunks in memory. */
  def data(chunks: ArrayList[Chunk]): Array[Byte] = joined(Nil, chunks)

  private def columns(chunks: ArrayList[Chunk]): Seq[Array[Byte]] = {
    val topics = new HashMap[TopicPlan, Integer]
    val places = new LinkedHashMap[ArrayList[String], Integer]
    val columns = ByteBuffer.allocate(RowBytes * chunks.size).order(ByteOrder.LITTLE_ENDIAN)
    val names = new ArrayList[ArrayList[String]]
    putInts(columns, chunks,
      chunk =>
        topics.computeIfAbsent(chunk.topic,
          topic => {
            names.add(texts(topic.name, topic.id))
            names.size - 1
          }))
    putInts(columns, chunks, _.partition)
    putInts(columns, chunks,
      chunk =>
        if (chunk.isInMemory) InMemory
        else {
          places.computeIfAbsent(texts(chunk.path, chunk.bootId, null), _ => places.size)
        })
    var at = 0L
    putLongs(columns, chunks,
      chunk =>
        if (chunk.isInMemory) {
          at += chunk.sizeBytes
          at - chunk.sizeBytes
        } else 0L)
    putLongs(columns, chunks, _.sizeBytes)
    putLongs(columns, chunks, _.records)
    putLongs(columns, chunks, _.minTimestamp)
    putLongs(columns, chunks, _.maxTimestamp)
    columns.position(columns.position() + chunks.size) // idempotent: false, without a producer
    putLongs(columns, chunks, checksum(_))
    val packed = deflated(columns.array)
    val fields = new LinkedHashMap[String, Any]
    fields.put("topics", names)
    fields.put("places", new ArrayList(places.keySet))
    fields.put("rows", chunks.size)
    fields.put("columns", packed.length)
    val header = deflated(new ObjectMapper().writeValueAsBytes(fields))
    val size = ByteBuffer.allocate(4).order(ByteOrder.LITTLE_ENDIAN).putInt(header.length).array
    Seq(size, header, packed)
  }

  /** Return the CRC-32C of a chunk in memory, which the ledger of a bucket needs; -1 for a file. */
  private def checksum(chunk: Chunk): Long =
    if (chunk.isInMemory) {
      val crc = new CRC32C
      chunk.parts.foreach(crc.update(_))
      crc.getValue
    } else -1L

  private def joined(parts: Seq[Array[Byte]], chunks: ArrayList[Chunk]): Array[Byte] = {
    var size = parts.map(_.length.toLong).sum
    chunks.forEach(chunk => if (chunk.isInMemory) size += chunk.sizeBytes)
    if (size > Arrays.SizeMax) throw new OutOfMemoryError(
      s"the staged chunks have $size bytes, more than a JVM array can have")
    val out = ByteBuffer.allocate(size.toInt)
    parts.foreach(out.put(_))
    chunks.forEach(chunk => if (chunk.isInMemory) chunk.parts.foreach(out.put(_)))
    out.array
  }

  private def texts(parts: String*): ArrayList[String] = {
    val list = new ArrayList[String](parts.length)
    parts.foreach(list.add)
    list
  }

  private def putInts(
      out: ByteBuffer, chunks: ArrayList[Chunk], value: Chunk => Int): Unit =
    chunks.forEach(chunk => out.putInt(value(chunk)))

  private def putLongs(
      out: ByteBuffer, chunks: ArrayList[Chunk], value: Chunk => Long): Unit =
    chunks.forEach(chunk => out.putLong(value(chunk)))

  private def deflated(bytes: Array[Byte]): Array[Byte] = {
    val out = new ByteArrayOutputStream(64 + bytes.length / 2)
    val deflater = new Deflater(Level)
    try {
      val stream = new DeflaterOutputStream(out, deflater)
      stream.write(bytes)
      stream.close()
    } finally deflater.end()
    out.toByteArray
  }
}
