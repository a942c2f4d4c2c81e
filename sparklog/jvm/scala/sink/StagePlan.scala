package sparklog.sink

import java.security.MessageDigest
import java.util.HashMap

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}

import sparklog.format.Codec

/**
 * The plan with which tasks stage rows: the JSON of sparklog/sink/jvm_plan.py. A topic is parsed
 * when the first row for it arrives.
 */
final class StagePlan private (plan: JsonNode, givenLabel: String) {
  val label: String = if (givenLabel == null) plan.get("label").asText else givenLabel
  /** The columns to write. */
  val columns: Array[String] = StagePlan.texts(plan.get("columns"))
  /** The topic of all rows; null if each row names its topic. */
  val topic: String = plan.get("topic").asText(null)
  val home: String = plan.get("home").asText
  val place: JsonNode = plan.get("place")
  val placeKind: String = place.get("kind").asText
  private[sink] val faults = new Faults(plan.get("faults"))
  private[sink] val directories = StagePlan.texts(plan.get("directories"))

  /** batch.size: target bytes of a batch, after which the sticky partition changes. */
  private[sink] val batchSize = plan.get("batch_bytes").asLong
  private val configs = plan.get("configs")
  private val newTopic = plan.get("new_topic")
  private val named = new HashMap[String, JsonNode]
  plan.get("topics").forEach(topic => named.put(topic.get("name").asText, topic))

  /**
   * Return the plan of a topic. Throws a StageError for a topic that doesn't exist and won't be
   * created.
   */
  private[sink] def topicOf(name: String): TopicPlan = {
    val known = named.get(name)
    if (known != null) new TopicPlan(this, name, known.get("id").asText, known)
    else if (newTopic.isNull) throw faults("unknown_topic", "topic", name, "home", home)
    else {
      TopicNames.check(name, faults)
      new TopicPlan(this, name, "", newTopic)
    }
  }

  private[sink] def framing(config: Int): TopicFraming =
    new TopicFraming(configs.get(config), batchSize)

  /** Return the first sticky partition of a task, as in Python's ChunkStager. */
  private[sink] def spreadStart(task: Int): Long = {
    // All attempts of a task must choose the same partitions, and different tasks different ones.
    val digest = MessageDigest.getInstance("SHA-256").digest(s"$label-$task".getBytes("UTF-8"))
    java.nio.ByteBuffer.wrap(digest).getInt & 0xffffffffL
  }
}

object StagePlan {
  /** Parse the JSON of the plan. The caller has checked the plan's version. */
  def parse(json: Array[Byte], label: String = null): StagePlan =
    new StagePlan(new ObjectMapper().readTree(json), label)

  /**
   * Return the label of a writer's micro-batch, like `chunk_label` (sparklog/storage/staging.py).
   */
  def label(writer: String, batch: Long): String = {
    val digest = MessageDigest.getInstance("SHA-256").digest(writer.getBytes("UTF-8"))
    digest.take(8).map(byte => f"${byte & 0xff}%02x").mkString + "-" + batch
  }

  private[sink] def texts(list: JsonNode): Array[String] = {
    val found = new Array[String](list.size)
    for (i <- found.indices) found(i) = list.get(i).asText
    found
  }
}

/**
 * The settings by which records of a topic are framed as batches and chunks. Sizes are in bytes.
 */
private[sink] final class TopicFraming(config: JsonNode, batchSize: Long) {
  val codec: Codec = Codec.named(config.get("codec").asText)
  val level: Option[Int] = Some(config.get("level")).filterNot(_.isNull).map(_.asInt)
  val maxMessageBytes: Int = config.get("max_message_bytes").asInt
  val batchBytes: Int = math.min(batchSize, maxMessageBytes).toInt
  val rollBytes: Long = config.get("roll_bytes").asLong
  val isCompacted: Boolean = config.get("compact").asBoolean
  /** In a log dir, the size from which the file of a chunk becomes a segment itself. */
  val segmentBytesMin: Long = config.path("segment_bytes_min").asLong(Long.MaxValue)

  if (config.has("refused")) {
    throw new StageError(config.get("refused").get(0).asText, config.get("refused").get(1).asText)
  }
}

/** A topic to which rows go. `id`: "" for a topic that the commit of its first rows creates. */
private[sink] final class TopicPlan(
    plan: StagePlan, val name: String, val id: String, topic: JsonNode) {
  val framing: TopicFraming = plan.framing(topic.get("config").asInt)
  /** The highest partition number plus one. */
  val partitions: Int = topic.get("partitions").asInt
  val batchSize: Long = plan.batchSize
  private val directory = topic.path("directory")
  private val numbers = Option(topic.get("numbers")).map { list =>
    Array.tabulate(list.size)(list.get(_).asInt)
  }
  private val offline = topic.path("offline")

  /** Return the log dir of an existing partition. */
  def directoryOf(partition: Int): String = {
    val place = numbers.fold(partition)(java.util.Arrays.binarySearch(_, partition))
    plan.directories(if (directory.isArray) directory.get(place).asInt else directory.asInt)
  }

  /** Throw a StageError if the partition doesn't exist or can't be used. */
  def check(partition: Int): Unit = {
    if (!has(partition)) {
      val there = numbers.getOrElse(Array.range(0, partitions))
      throw plan.faults("no_partition", "topic", name, "partition", partition.toString,
        "partitions", there.mkString("[", ", ", "]"))
    }
    val why = offline.path(partition.toString)
    if (!why.isMissingNode) {
      throw new StageError(why.get(0).asText, why.get(1).asText, why.get(2).asText(null))
    }
  }

  private def has(partition: Int): Boolean = partition >= 0 && partition < partitions &&
    numbers.forall(java.util.Arrays.binarySearch(_, partition) >= 0)

  /**
   * Return the partitions over which rows without partition and key are spread, like Kafka's
   * availablePartitionsForTopic.
   */
  def available: Array[Int] = {
    val there = Array.range(0, partitions).filterNot(p => offline.has(p.toString))
    if (there.isEmpty) Array(0) else there
  }
}

/** Checks topic names by Kafka's rules, like sparklog/format/names.py. */
private[sink] object TopicNames {
  private val LengthMax = 249

  def check(name: String, faults: Faults): Unit = {
    val length = name.codePointCount(0, name.length)
    if (name.isEmpty || name == "." || name == "..") {
      throw faults("topic_refused", "name", PythonText.repr(name))
    } else if (length > LengthMax) {
      val begin = name.substring(0, name.offsetByCodePoints(0, 20))
      throw faults("topic_too_long", "name", PythonText.repr(begin), "length", length.toString,
        "most", LengthMax.toString)
    } else if (!name.forall(isAllowed)) {
      throw faults("topic_characters", "name", PythonText.repr(name))
    }
  }

  private def isAllowed(c: Char): Boolean = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
    (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-'
}
