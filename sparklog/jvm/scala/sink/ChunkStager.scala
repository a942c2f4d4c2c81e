package sparklog.sink

import java.nio.ByteBuffer
import java.util.{ArrayList, HashMap}

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.types.StructType
import org.apache.spark.unsafe.types.UTF8String

import sparklog.format.{BatchBuilder, BatchHeader, Codec, Compressor, Murmur2, RecordTooLarge}

/**
 * Rows become chunks: each row's topic and partition, its record in the batch that its partition
 * has open, full batches at the end of its chunk. Partitions and chunks are those that Python's
 * ChunkStager (sparklog/log/chunk_stager.py) makes of the same rows; where a batch ends may differ.
 *
 * Memory: `openBytesMax` of batches that are open, whatever the number of partitions: the largest
 * are closed early when there are more. Or one record, if it is larger. And what `place` holds.
 *
 * @param spreadStart where rows without partition and key begin to be spread
 */
private[sink] final class ChunkStager(
    plan: StagePlan, schema: StructType, place: ChunkPlace, clockMs: () => Long,
    spreadStart: Long, openBytesMax: Long) {
  import ChunkStager._

  private val fields = new RowFields(schema, plan.columns, plan.faults)
  private val topics = new HashMap[UTF8String, TopicStager]
  private val compressors = new HashMap[(Codec, Option[Int]), Compressor]
  private val opened = new ArrayList[PartitionStager] // with a builder
  private val staged = new ArrayList[PartitionStager] // all, in the order of their first rows
  private var done = new ArrayList[Chunk]
  private var held = 0L // by the builders
  private var nowMs = clockMs()
  private var rows = 0L
  private var last: TopicStager = if (plan.topic == null) null else stagerOf(plan.topic)

  /** Stage a row. A StageError if it can't be: then nothing of the task may be committed. */
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

  /** One for all the partitions that are compressed alike. */
  private def compressor(framing: TopicFraming): Compressor =
    compressors.computeIfAbsent((framing.codec, framing.level), how => Compressor(how._1, how._2))

  private def tooLarge(partition: PartitionStager, e: RecordTooLarge): StageError =
    plan.faults("too_large", "topic", partition.topic.name, "size", e.sizeBytes.toString,
      "most", e.maxMessageBytes.toString, "home", plan.home)

  /** Put what a partition has open at its chunk's end; there must be something. */
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

  /** Offsets of a new chunk count from 0; no CRC covers a base offset. */
  private def moveBack(batches: ByteBuffer, by: Long): Unit = {
    var at = batches.position()
    while (at < batches.limit()) {
      batches.putLong(at, batches.getLong(at) - by)
      at += BatchHeader.LogOverhead + batches.getInt(at + BatchHeader.LengthAt)
    }
  }

  /** Turn what has grown into a chunk, and begin anew behind it. */
  private def endChunk(partition: PartitionStager): Unit = if (partition.chunk.sizeBytes > 0) {
    done.add(place.close(partition.chunk))
    partition.chunk = new GrowingChunk(partition.topic, partition.number)
  }

  /** Close the batches that take the most memory, and give it back, until a part of it is free. */
  private def endLargest(): Unit = {
    opened.sort((a, b) => java.lang.Long.compare(b.heldBytes, a.heldBytes))
    var ended = 0
    while (ended < opened.size && held > openBytesMax / 4 * 3) {
      giveBack(opened.get(ended))
      ended += 1
    }
    opened.subList(0, ended).clear()
  }

  /** Close a partition's batch, if there is one, and drop its builder. */
  private def giveBack(partition: PartitionStager): Unit = {
    if (partition.builder.count > 0) endBatch(partition)
    partition.builder = null
    held -= partition.heldBytes
    partition.heldBytes = 0
  }

  /** The chunks that are closed by now, and no more returned after this. */
  def taken(): ArrayList[Chunk] = {
    val taken = done
    done = new ArrayList[Chunk]
    taken
  }

  /** All chunks, in the order in which their partitions must get them. */
  def finish(): ArrayList[Chunk] = {
    opened.forEach(giveBack(_))
    opened.clear()
    staged.forEach(endChunk(_))
    done = place.finish(done)
    taken()
  }

  /** Give back what isn't on the heap. It can't be used any more. */
  def close(): Unit = compressors.values.forEach(_.close())
}

private object ChunkStager {
  /** The clock is looked at once for so many rows and one: it costs as much as half a row. */
  val ClockMask = 63L
  /** Of a builder, and of what refers to it, beside its buffer. */
  val BuilderBytes = 256L
}

/** The rows of one topic. */
private final class TopicStager(val plan: TopicPlan, spreadStart: Long) {
  val name: UTF8String = UTF8String.fromString(plan.name)
  private val partitions = new Array[PartitionStager](plan.partitions)
  private var available: Array[Int] = _
  private var current = 0 // where rows adrift go
  private var come = 0L // bytes of their values
  private var until = 0L // how many may come before they go elsewhere

  /** A StageError if it isn't there, or can't be used. */
  def partition(number: Int): PartitionStager = {
    val known = if (number >= 0 && number < partitions.length) partitions(number) else null
    if (known != null) known
    else {
      plan.check(number)
      partitions(number) = new PartitionStager(plan, number)
      partitions(number)
    }
  }

  /** Where a row goes that says nothing of it: on by one after every batch.size bytes of values. */
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

/** The rows of one partition: its open batch, and the chunk that grows. */
private final class PartitionStager(val topic: TopicPlan, val number: Int) {
  var builder: BatchBuilder = _
  /** That the builder keeps, as it was last looked at. */
  var heldBytes = 0L
  var chunk: GrowingChunk = _
}
