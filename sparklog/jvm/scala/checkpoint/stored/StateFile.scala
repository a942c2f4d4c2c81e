package sparklog.checkpoint.stored

import scala.jdk.CollectionConverters._

/**
 * A file of a state store that belongs to a version of the state: a delta, changelog or snapshot.
 *
 * @param version the version of the state: the batch that made it, plus 1
 * @param id the unique id of the task's attempt in state format 2; None in format 1
 * @param isChange whether this is the change of one batch, and not a snapshot
 */
final case class StateFile(
    operator: String, version: Long, id: Option[String], isChange: Boolean)

object StateFile {
  private val Name =
    ("state/(\\d+)/\\d+/(?:[^/]+/)?(\\d+)(?:_([0-9a-zA-Z-]+))?" +
      "\\.(delta|changelog|snapshot|zip)(?:\\.crc)?").r
  private val Commit = "commits/(\\d+)".r
  private val Offset = "offsets/(\\d+)".r

  /** Return the state file at a path relative to the checkpoint, or None. */
  def of(path: String): Option[StateFile] = path match {
    case Name(operator, version, id, kind) =>
      val isChange = kind == "delta" || kind == "changelog"
      Some(StateFile(operator, version.toLong, Option(id), isChange))
    case _ => None
  }

  /** Return the batch of a file in the directory `commits`. */
  def commit(path: String): Option[Long] = path match {
    case Commit(batch) => Some(batch.toLong)
    case _ => None
  }

  /** Whether a write of this file ends a step of the query, so that it must be durable at once. */
  def isCommitPoint(path: String): Boolean = Offset.matches(path) || Commit.matches(path)

  /**
   * Return the unique ids of the attempts that a file in `commits` names, by operator; None in
   * state format 1. Format: CommitMetadata.stateUniqueIds, written below the version line.
   */
  def uniqueIds(commit: Array[Byte]): Option[Map[String, Set[String]]] = {
    val text = new String(commit, "UTF-8")
    val json = StoredFile.mapper.readTree(text.substring(text.indexOf('\n') + 1))
    val ids = json.path("stateUniqueIds")
    if (!ids.isObject) None
    else Some(ids.properties.asScala.map(e => e.getKey -> leaves(e.getValue).toSet).toMap)
  }

  private def leaves(node: com.fasterxml.jackson.databind.JsonNode): Iterator[String] =
    if (node.isTextual) Iterator(node.asText)
    else node.elements.asScala.flatMap(leaves)
}
