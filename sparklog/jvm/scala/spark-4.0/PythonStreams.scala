package org.apache.spark.sql.execution.datasources.v2.python

import org.apache.spark.sql.connector.read.{InputPartition, PartitionReaderFactory}
import org.apache.spark.sql.connector.read.streaming.{
  MicroBatchStream, Offset, ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
}

/** Streams of Python data sources, which cannot limit micro-batches in Spark 4.0 and 4.1. */
object PythonStreams {
  type Stream = MicroBatchStream with SupportsTriggerAvailableNow

  /** Return the stream with the limits that its reader in Python (CalledReader) supports. */
  def admitting(stream: MicroBatchStream): Stream = new CallingStream(stream)
}

/**
 * Calls the methods of a Python reader that the worker of Spark 4.0 and 4.1 does not know.
 *
 * The worker passes the offsets of `planInputPartitions` to the reader unchanged. An offset that
 * describes a call is kept by the reader, which plans no partitions for it, and returns the result
 * of the call as the next `latestOffset`. See sparklog/source/called_reader.py.
 */
private final class CallingStream(python: MicroBatchStream)
    extends MicroBatchStream with SupportsTriggerAvailableNow {
  override def initialOffset(): Offset = python.initialOffset()
  override def deserializeOffset(json: String): Offset = python.deserializeOffset(json)
  override def planInputPartitions(start: Offset, end: Offset): Array[InputPartition] =
    python.planInputPartitions(start, end)
  override def createReaderFactory(): PartitionReaderFactory = python.createReaderFactory()
  override def commit(end: Offset): Unit = python.commit(end)
  override def stop(): Unit = python.stop()

  override def latestOffset(): Offset = throw new UnsupportedOperationException(
    "Spark calls latestOffset(Offset, ReadLimit) instead")

  override def latestOffset(start: Offset, limit: ReadLimit): Offset =
    call("latestOffset", start.json, !limit.isInstanceOf[ReadAllAvailable])

  override def getDefaultReadLimit(): ReadLimit =
    if (call("getDefaultReadLimit").json == CallingStream.NoLimit) ReadLimit.allAvailable()
    else ReadLimit.maxRows(Long.MaxValue) // the reader knows the limits

  override def prepareForTriggerAvailableNow(): Unit = call("prepareForTriggerAvailableNow")

  override def reportLatestOffset(): Offset = {
    val latest = call("reportLatestOffset")
    if (latest.json == "null") null else latest
  }

  private def call(method: String, start: String = "{}", limited: Boolean = false): Offset = {
    val request = PythonStreamingSourceOffset(
      s"""{"#call": "$method", "start": $start, "limited": $limited}""")
    python.planInputPartitions(request, request)
    python.latestOffset()
  }
}

private object CallingStream {
  val NoLimit = "false"
}
