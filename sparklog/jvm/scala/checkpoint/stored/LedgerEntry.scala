package sparklog.checkpoint.stored

import sparklog.checkpoint.RecordBatch

/** The place of an entry: a run, and the number of the entry in the run. */
final case class Place(run: Long, number: Long)

/**
 * An entry of the ledger: record batches, of which the first is the header.
 *
 * @param kind Begin, Files or Seal
 * @param attempt the random id of the attempt to write the entry
 * @param previous in a Begin: the seal of the previous run; None for the first run
 * @param index in a Begin: the object with all files at the end of the previous run
 * @param owner who wrote the entry, as JSON
 */
final case class LedgerEntry(
    place: Place, kind: String, attempt: String, previous: Option[Place], index: Option[String],
    owner: String, changes: Seq[Change])

object LedgerEntry {
  val Begin = "begin"
  val Files = "files"
  val Seal = "seal"

  private val HeaderKey = "sparklog.entry"

  /** Return the entry's bytes, and the entry with the locations of its contents. */
  def encode(entry: LedgerEntry, obj: String, timestamp: Long): (Array[Byte], LedgerEntry) = {
    val builder = new ObjectBuilder(obj, entry.place.run, timestamp)
    val header = StoredFile.mapper.createObjectNode()
    header.put("kind", entry.kind).put("run", entry.place.run).put("number", entry.place.number)
      .put("attempt", entry.attempt).put("files", entry.changes.size)
    for (previous <- entry.previous) {
      header.putObject("previous").put("run", previous.run).put("number", previous.number)
    }
    entry.index.foreach(header.put("index", _))
    header.set[com.fasterxml.jackson.databind.JsonNode](
      "owner", StoredFile.mapper.readTree(entry.owner))
    builder.add(HeaderKey, StoredFile.Header, StoredFile.mapper.writeValueAsBytes(header))
    val placed = entry.changes.map(builder.add)
    (builder.bytes, entry.copy(changes = placed))
  }

  /**
   * Parse an entry. Throws an IOException for damaged bytes and for the entry of another place.
   */
  def decode(place: Place, obj: String, bytes: Array[Byte]): LedgerEntry = {
    var head: Option[com.fasterxml.jackson.databind.node.ObjectNode] = None
    val changes = Seq.newBuilder[Change]
    var count = 0
    StoredFile.walk(obj, bytes) { (at, size, batch, value) =>
      if (head.isEmpty) head = Some(StoredFile.header(obj, HeaderKey, batch, value))
      else {
        count += 1
        changes += change(obj, at, size, batch, value)
      }
    }
    val header = head.getOrElse(throw StoredFile.damaged(obj, 0))
    val found = Place(header.path("run").asLong(-1), header.path("number").asLong(-1))
    if (found != place) {
      throw StoredFile.swapped(obj, s"entry ${found.number} of run ${found.run}")
    }
    if (header.path("files").asInt(-1) != count) throw StoredFile.damaged(obj, bytes.length.toLong)
    val previous = header.path("previous")
    LedgerEntry(
      place,
      header.path("kind").asText,
      header.path("attempt").asText,
      if (previous.isObject) {
        Some(Place(previous.path("run").asLong, previous.path("number").asLong))
      } else None,
      if (header.has("index")) Some(header.path("index").asText) else None,
      header.path("owner").toString,
      changes.result()
    )
  }

  /** Return the change that a record of an entry or an index describes. */
  def change(
      obj: String, at: Int, size: Int, batch: RecordBatch, value: Array[Byte]): Change =
    batch.tag match {
      case StoredFile.Content if value == null => Change(batch.key, None, None)
      case StoredFile.Content =>
        val file = StoredFile(Location(obj, at, size), value.length, batch.timestamp)
        Change(batch.key, Some(value), Some(file))
      case StoredFile.Reference =>
        Change(batch.key, None, Some(StoredFile.referred(value, batch.timestamp)))
      case _ => throw StoredFile.damaged(obj, at)
    }
}
