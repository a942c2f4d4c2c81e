package sparklog.sink

import java.nio.ByteBuffer
import java.util.{ArrayList, HashMap}

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.types.StructType
import org.apache.spark.unsafe.types.UTF8String

import sparklog.format.{BatchBuilder, BatchHeader, Codec, Compressor, Murmur2, RecordTooLarge}

/**
 * Turns rows into chunks: determines the topic and partition of each row, appends a record to the
 * open batch of the partition, and appends full batches to the partition's chunk. Rows get the same
 * partitions and chunks as from Python's ChunkStager (sparklog/log/chunk_stager.py), but batches
 * may end at other records.
 *
 * Memory: the memory of `place`, and for any number of partitions `openBytesMax` of open batches,
 * because the largest batches are closed early; more only for a single larger record.
 *
 * @param spreadStart the first partition of rows without partition and key
 */
private[sink] final class ChunkStager(
    plan: StagePlan, schema: StructType, place: ChunkPlace, clockMs: () => Long,
    spreadStart: Long, openBytesMax: Long) {
  import ChunkStager._

  private val fields = new RowFields(schema, plan.columns, plan.faults)
  private val topics = new HashMap[UTF8String, TopicStager]
  private val compressors = new HashMap[(Codec, Option[Int]), Compressor]
  private val opened = new ArrayList[PartitionStager] // partitions with a builder
  private val staged = new ArrayList[PartitionStager] // all, in the order of their first rows
  private var done = new ArrayList[Chunk]
  private var held = 0L // memory of the builders
  private var nowMs = clockMs()
  private var rows = 0L
  private var last: TopicStager = if (plan.topic == null) null else stagerOf(plan.topic)

  /**
   * Stage a row. Throws a StageError for an invalid row; nothing of the task may be committed then.
   */
  def add(row: InternalRow): Unit = {
    if ((rows & ClockMask) == 0) nowMs = clockMs()
    rows += 1
    fields.read(row)
    if (plan.topic == null) last = topicOf(row)
    val topic = last
    if (fields.keyBytes < 0 && topic.plan.framing.isCompacted) {
      throw plan.faults("no_key", "topic", topic.plan.name)
    }
    val number =
      if (fields.hasPartition(row)) fields.partition(row)
      else if (topic.plan.partitions == 1) 0
      else if (fields.keyBytes >= 0) {
        Murmur2.partition(fields.keyBase, fields.keyOffset, fields.keyBytes, topic.plan.partitions)
      } else topic.adrift(fields.valueBytes)
    append(topic.partition(number), fields.timestampMs(row, nowMs))
  }

  private def topicOf(row: InternalRow): TopicStager = {
    val name = fields.topic(row)
    if (name == null) throw plan.faults("null_topic")
    if (last != null && last.name == name) last
    else {
      val known = topics.get(name)
      if (known == null) stagerOf(name.toString) else known
    }
  }

  private def stagerOf(name: String): TopicStager = {
    val made = new TopicStager(plan.topicOf(name), spreadStart)
    topics.put(made.name, made)
    made
  }

  private def append(partition: PartitionStager, timestampMs: Long): Unit = {
    if (partition.builder == null) open(partition)
    try {
      while (!partition.builder.append(
          timestampMs, fields.keyBase, fields.keyOffset, fields.keyBytes, fields.valueBase,
          fields.valueOffset, fields.valueBytes, fields.headers, fields.headersBytes)) {
        endBatch(partition)
      }
    } catch { case e: RecordTooLarge => throw tooLarge(partition, e) }
    val now = partition.builder.heldBytes + BuilderBytes
    if (now != partition.heldBytes) {
      held += now - partition.heldBytes
      partition.heldBytes = now
      if (held > openBytesMax) endLargest()
    }
  }

  private def open(partition: PartitionStager): Unit = {
    val framing = partition.topic.framing
    partition.builder = new BatchBuilder(
      compressor(framing), framing.batchBytes, framing.maxMessageBytes)
    if (partition.chunk == null) {
      partition.chunk = new GrowingChunk(partition.topic, partition.number)
      staged.add(partition)
    }
    opened.add(partition)
  }

  /** Return a compressor, which all partitions with the same compression share. */
  private def compressor(framing: TopicFraming): Compressor =
    compressors.computeIfAbsent((framing.codec, framing.level), how => Compressor(how._1, how._2))

  private def tooLarge(partition: PartitionStager, e: RecordTooLarge): StageError =
    plan.faults("too_large", "topic", partition.topic.name, "size", e.sizeBytes.toString,
      "most", e.maxMessageBytes.toString, "home", plan.home)

  /**
   * Append the open batch of a partition, which has at least one record, to the partition's chunk.
   */
  private def endBatch(partition: PartitionStager): Unit = {
    val builder = partition.builder
    val count = builder.count
    val batches =
      try builder.close(partition.chunk.records)
      catch { case e: RecordTooLarge => throw tooLarge(partition, e) }
    val size = batches.remaining
    if (partition.chunk.sizeBytes > 0 &&
      partition.chunk.sizeBytes + size > partition.topic.framing.rollBytes) {
      moveBack(batches, partition.chunk.records)
      endChunk(partition)
    }
    val chunk = partition.chunk
    chunk.sizeBytes += size
    chunk.records += count
    chunk.minTimestamp = math.min(chunk.minTimestamp, builder.minTimestamp)
    chunk.maxTimestamp = math.max(chunk.maxTimestamp, builder.maxTimestamp)
    if (place.grow(chunk, batches)) staged.forEach(endChunk(_))
  }

  /**
   * Subtract `by` from the offsets of the batches, because the offsets of a new chunk count from 0.
   * The CRC of a batch does not cover its base offset.
   */
  private def moveBack(batches: ByteBuffer, by: Long): Unit = {
    var at = batches.position()
    while (at < batches.limit()) {
      batches.putLong(at, batches.getLong(at) - by)
      at += BatchHeader.LogOverhead + batches.getInt(at + BatchHeader.LengthAt)
    }
  }

  /** Close the growing chunk and begin the next one. */
  private def endChunk(partition: PartitionStager): Unit = if (partition.chunk.sizeBytes > 0) {
    done.add(place.close(partition.chunk))
    partition.chunk = new GrowingChunk(partition.topic, partition.number)
  }

  /**
   * Close the batches that use the most memory and release it, until a quarter of the limit is
   * free.
   */
  private def endLargest(): Unit = {
    opened.sort((a, b) => java.lang.Long.compare(b.heldBytes, a.heldBytes))
    var ended = 0
    while (ended < opened.size && held > openBytesMax / 4 * 3) {
      giveBack(opened.get(ended))
      ended += 1
    }
    opened.subList(0, ended).clear()
  }

  /** Close the open batch of a partition, if there is one, and drop the builder. */
  private def giveBack(partition: PartitionStager): Unit = {
    if (partition.builder.count > 0) endBatch(partition)
    partition.builder = null
    held -= partition.heldBytes
    partition.heldBytes = 0
  }

  /** Return the chunks that were closed since the last call. */
  def taken(): ArrayList[Chunk] = {
    val taken = done
    done = new ArrayList[Chunk]
    taken
  }

  /** Return all chunks, in the order in which their partitions must append them. */
  def finish(): ArrayList[Chunk] = {
    opened.forEach(giveBack(_))
    opened.clear()
    staged.forEach(endChunk(_))
    done = place.finish(done)
    taken()
  }

  /** Release native memory. The object can't be used afterwards. */
  def close(): Unit = compressors.values.forEach(_.close())
}

private object ChunkStager {
  /** The clock is read once per 64 rows, because a reading costs as much as half a row. */
  val ClockMask = 63L
  /** Memory of a builder and its references, without its buffer. */
  val BuilderBytes = 256L
}

/** Distributes the rows of a topic to partitions. */
private final class TopicStager(val plan: TopicPlan, spreadStart: Long) {
  val name: UTF8String = UTF8String.fromString(plan.name)
  private val partitions = new Array[PartitionStager](plan.partitions)
  private var available: Array[Int] = _
  private var current = 0 // the sticky partition
  private var come = 0L // bytes of values so far in sticky partitions
  private var until = 0L // bytes at which the sticky partition changes

  /**
   * Return the stager of a partition. Throws a StageError if the partition doesn't exist or can't
   * be used.
   */
  def partition(number: Int): PartitionStager = {
    val known = if (number >= 0 && number < partitions.length) partitions(number) else null
    if (known != null) known
    else {
      plan.check(number)
      partitions(number) = new PartitionStager(plan, number)
      partitions(number)
    }
  }

  /**
   * Return the partition for a row without partition and key: the sticky partition, which changes
   * after every batch.size bytes of values.
   */
  def adrift(valueBytes: Int): Int = {
    if (come >= until) {
      if (available == null) available = plan.available
      val step = come / plan.batchSize
      current = available(((spreadStart + step) % available.length).toInt)
      until = (step + 1) * plan.batchSize
    }
    come += math.max(valueBytes, 0)
    current
  }
}

/** The open batch and the growing chunk of a partition. */
private final class PartitionStager(val topic: TopicPlan, val number: Int) {
  var builder: BatchBuilder = _
  /** The memory of the builder when it was last measured. */
  var heldBytes = 0L
  var chunk: GrowingChunk = _
}
