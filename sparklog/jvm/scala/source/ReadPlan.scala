package sparklog.source

import java.nio.file.{Path, Paths}

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}

/** The plan of a read task. sparklog/source/jvm_plan.py makes the plan and documents its fields. */
final class ReadPlan(val standing: Array[Standing], val pieces: Array[Piece])

/** A file or directory whose `inode` changes if the log is replaced. */
final class Standing(val path: Path, val inode: Long)

/**
 * A piece of the plan: the offsets [start, end) of a partition. `files` is null if Python reads the
 * piece, for the reason `python`.
 */
final class Piece(
    val topic: String,
    val partition: Int,
    val start: Long,
    val end: Long,
    val python: String,
    val files: PieceFiles)

/**
 * The location of a piece.
 *
 * @param topicId the topic id to check; null for no check
 * @param gaps whether offsets may be missing, because of compaction
 * @param next the base offset of the first segment behind the piece; -1 if there is none
 * @param without spans of offsets to skip: start, end, start, end and so on
 * @param aborted aborted transactions: producer id, first offset, offset of the marker, and so on
 */
final class PieceFiles(
    val directory: Path,
    val topicId: String,
    val gaps: Boolean,
    val segments: Array[Long],
    val next: Long,
    val without: Array[Long],
    val aborted: Array[Long])

object ReadPlan {
  val Version: Int = sparklog.Version.plans

  private val mapper = new ObjectMapper

  /**
   * Parse a plan. Throws an IllegalArgumentException, or a JsonProcessingException of Jackson, for
   * an invalid plan.
   */
  def parse(json: Array[Byte]): ReadPlan = {
    val plan = mapper.readTree(json)
    val version = required(plan, "version").asInt
    if (version != Version) throw new IllegalArgumentException(
      s"the read plan has version $version, but the jar supports version $Version: install the " +
        "jar and the Python package of the same sparklog version")
    val standing = mapped(required(plan, "standing")) { each =>
      new Standing(Paths.get(each.get(0).asText), each.get(2).asLong)
    }
    new ReadPlan(standing.toArray, mapped(required(plan, "pieces"))(piece).toArray)
  }

  private def piece(node: JsonNode): Piece = {
    val python = node.get("python")
    new Piece(
      required(node, "topic").asText,
      required(node, "partition").asInt,
      required(node, "start").asLong,
      required(node, "end").asLong,
      if (python == null) null else python.asText,
      if (python == null) files(node) else null
    )
  }

  private def files(node: JsonNode): PieceFiles = {
    val topicId = required(node, "topicId")
    val next = required(node, "next")
    new PieceFiles(
      Paths.get(required(node, "directory").asText),
      if (topicId.isNull) null else topicId.asText,
      required(node, "gaps").asBoolean,
      mapped(required(node, "segments"))(_.asLong).toArray,
      if (next.isNull) -1 else next.asLong,
      rows(required(node, "without")),
      rows(required(node, "aborted"))
    )
  }

  private def rows(node: JsonNode): Array[Long] =
    mapped(node)(row => mapped(row)(_.asLong)).flatten.toArray

  private def mapped[T](array: JsonNode)(made: JsonNode => T): Seq[T] =
    (0 until array.size).map(at => made(array.get(at)))

  private def required(node: JsonNode, name: String): JsonNode = {
    val found = node.get(name)
    if (found == null)
      throw new IllegalArgumentException(s"the read plan has no field $name: $node")
    found
  }
}
