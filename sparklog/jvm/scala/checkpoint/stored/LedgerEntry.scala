package sparklog.checkpoint.stored

import com.fasterxml.jackson.databind.JsonNode

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
      .put("attempt", entry.attempt)
    for (previous <- entry.previous) {
      header.putObject("previous").put("run", previous.run).put("number", previous.number)
    }
    entry.index.foreach(header.put("index", _))
    header.set[JsonNode]("owner", StoredFile.mapper.readTree(entry.owner))
    builder.addHeader(HeaderKey, header, entry.changes.size)
    val placed = entry.changes.map(builder.add)
    (builder.bytes, entry.copy(changes = placed))
  }

  /**
   * Parse an entry. Throws an IOException for damaged bytes and for the entry of another place.
   */
  def decode(place: Place, obj: String, bytes: Array[Byte]): LedgerEntry = {
    val (header, changes) = StoredFile.read(obj, HeaderKey, bytes)
    val found = Place(header.path("run").asLong(-1), header.path("number").asLong(-1))
    if (found != place) {
      throw StoredFile.swapped(obj, s"entry ${found.number} of run ${found.run}")
    }
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
      changes
    )
  }
}
