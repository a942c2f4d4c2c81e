package sparklog.checkpoint.stored

import java.io.IOException

import sparklog.checkpoint.Layout

/**
 * The object that marks a checkpoint in runs and contains its random id, which is part of the names
 * of all other objects: a location that is deleted and used again has another id.
 */
object CheckpointHome {
  val Name = s"${Layout.LogDirName}/home"
  private val Key = "sparklog.home"
  private val Format = 1

  def encode(id: String): Array[Byte] = {
    val builder = new ObjectBuilder(Name, 0, System.currentTimeMillis())
    val header = StoredFile.mapper.createObjectNode().put("format", Format).put("id", id)
    builder.addHeader(Key, header, 0)
    builder.bytes
  }

  /** Return the id. Throws an IOException for damaged bytes, and for an unknown format. */
  def idOf(root: String, bytes: Array[Byte]): String = {
    val (header, _) = StoredFile.read(s"$root/$Name", Key, bytes)
    val format = header.path("format").asInt(-1)
    if (format != Format) throw new IOException(
      s"$root is a checkpoint of format $format, and this version of sparklog reads format " +
        s"$Format: use a later version of sparklog")
    header.path("id").asText
  }

  /**
   * Throw an IOException if a location without this object contains objects of a checkpoint, so
   * that a query does not begin again at batch 0.
   */
  def checkNotLost(root: String, store: ObjectStore): Unit = {
    val left = store.list(Layout.LogDirName).map(_.name)
    for (entry <- left.find(_.contains("/run-"))) throw new IOException(
      s"$root contains objects of a checkpoint ($entry), but the object $Name is missing. " +
        "Restore the object from a copy or from an older version of the bucket, or start the " +
        "query with a new checkpointLocation")
    for (record <- left.find(_.startsWith(s"${Layout.LogDirName}/${Layout.Metadata}/"))) {
      throw new IOException(
        s"$root contains the log of a checkpoint from a local disk ($record), which is used on a " +
          "local disk only. Bring it here by sparklog checkpoint fork DIRECTORY URL, or start " +
          "the query with a new checkpointLocation")
    }
  }
}
