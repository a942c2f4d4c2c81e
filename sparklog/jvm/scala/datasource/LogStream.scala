package sparklog.datasource

import java.util.{Map => JavaMap, Optional}

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.connector.read.{InputPartition, PartitionReaderFactory}
import org.apache.spark.sql.connector.read.streaming.{
  MicroBatchStream, Offset, ReadLimit, ReportsSourceMetrics, SupportsTriggerAvailableNow
}
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

import sparklog.source.LogReaderFactory

/**
 * A stream of the log. The Python source handles offsets, admission and planning. `run`: the run
 * id of the query.
 */
private[datasource] final class LogStream(
    python: MicroBatchStream with SupportsTriggerAvailableNow,
    schema: StructType,
    options: CaseInsensitiveStringMap,
    run: String)
    extends MicroBatchStream with SupportsTriggerAvailableNow with ReportsSourceMetrics {
  private val described = CallerOptions.described(options)
  private val whyPython = CallerOptions.whyPython(options)
  private val reader = new DataPath
  @volatile private var latest: Offset = _
  @volatile private var isStopped = false

  override def initialOffset(): Offset = python.initialOffset()
  override def deserializeOffset(json: String): Offset = python.deserializeOffset(json)
  override def latestOffset(): Offset = python.latestOffset()
  override def latestOffset(start: Offset, limit: ReadLimit): Offset =
    python.latestOffset(start, limit)
  override def getDefaultReadLimit(): ReadLimit = python.getDefaultReadLimit()
  override def prepareForTriggerAvailableNow(): Unit = python.prepareForTriggerAvailableNow()
  // With asynchronous progress tracking, Spark 4.3 commits once more after it has stopped the
  // sources. The exception would leave the query registered, so that no restart is possible.
  override def commit(end: Offset): Unit = if (!isStopped) python.commit(end)
  override def stop(): Unit = {
    isStopped = true
    python.stop()
  }

  override def reportLatestOffset(): Offset = {
    latest = python.reportLatestOffset()
    latest
  }

  override def planInputPartitions(start: Offset, end: Offset): Array[InputPartition] = {
    val begin = CallerOptions.ofBatch(start, SparkSession.active.sparkContext)
    val planned = PlannedPartitions.of(python.planInputPartitions(begin, end), whyPython)
    if (planned.partitions.nonEmpty) reader.say(run, s"reads $described", planned.dataPath)
    planned.partitions
  }

  override def createReaderFactory(): PartitionReaderFactory = new LogReaderFactory(
    schema, new UnpackedPartitions(python.createReaderFactory(), schema, schema))

  /** Return how far the query is behind the log, and the data path of its reads. */
  override def metrics(consumed: Optional[Offset]): JavaMap[String, String] = {
    val found = reader.metrics("reader")
    if (latest != null && consumed.isPresent) {
      OffsetsBehind.put(found, latest.json, consumed.get.json)
    }
    found
  }

  /** Shown in progress and errors. */
  override def toString: String = s"sparklog[$described]"
}
