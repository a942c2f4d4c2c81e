package sparklog.checkpoint.stored

import java.io.IOException

/**
 * The object that marks a checkpoint in runs and contains its random id, which is part of the names
 * of all other objects: a location that is deleted and used again has another id.
 */
object CheckpointHome {
  val Name = "sparklog/home"
  private val Key = "sparklog.home"
  private val Format = 1

  def encode(id: String): Array[Byte] = {
    val header = StoredFile.mapper.createObjectNode().put("format", Format).put("id", id)
    val builder = new ObjectBuilder(Name, 0, System.currentTimeMillis())
    builder.add(Key, StoredFile.Header, StoredFile.mapper.writeValueAsBytes(header))
    builder.bytes
  }

  /** Return the id. Throws an IOException for damaged bytes, and for an unknown format. */
  def idOf(root: String, bytes: Array[Byte]): String = {
    var found: Option[String] = None
    StoredFile.walk(s"$root/$Name", bytes) { (_, _, batch, value) =>
      val header = StoredFile.header(s"$root/$Name", Key, batch, value)
      val format = header.path("format").asInt(-1)
      if (format != Format) throw new IOException(
        s"$root is a checkpoint of format $format, and this version of sparklog reads format " +
          s"$Format: use a later version of sparklog")
      found = Some(header.path("id").asText)
    }
    found.getOrElse(throw StoredFile.damaged(s"$root/$Name", 0))
  }

  /**
   * Throw an IOException if a location without this object contains objects of a checkpoint, so
   * that a query does not begin again at batch 0.
   */
  def checkNotLost(root: String, store: ObjectStore): Unit =
    for (left <- store.list("sparklog").find(_.name.contains("/run-"))) throw new IOException(
      s"$root contains objects of a checkpoint (${left.name}), but the object $Name is missing. " +
        "Restore the object from a copy or from an older version of the bucket, or start the " +
        "query with a new checkpointLocation")
}
