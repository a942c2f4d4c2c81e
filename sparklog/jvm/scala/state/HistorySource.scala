package sparklog.state

import java.util.UUID
import java.util.concurrent.ConcurrentHashMap

import org.apache.spark.sql.{DataFrame, SQLContext}
import org.apache.spark.sql.classic.Dataset
import org.apache.spark.sql.connector.read.streaming.{
  Offset => StreamingOffset, ReadLimit, SupportsTriggerAvailableNow
}
import org.apache.spark.sql.execution.streaming.{InternalFrames, Offset, Source}
import org.apache.spark.sql.sources.StreamSourceProvider
import org.apache.spark.sql.streaming.DataStreamReader
import org.apache.spark.sql.types.StructType

/**
 * A streaming source with all rows of a batch DataFrame in one micro-batch. A query reads a history
 * from it (sparklog/state/bootstrap.py). It can't be used after a restart of the driver.
 */
final class HistorySource extends StreamSourceProvider {
  private type Parameters = Map[String, String]

  override def sourceSchema(
      context: SQLContext,
      schema: Option[StructType],
      name: String,
      parameters: Parameters): (String, StructType) =
    (name, InternalFrames.nullable(HistorySource.frame(parameters).schema))

  override def createSource(
      context: SQLContext,
      metadataPath: String,
      schema: Option[StructType],
      name: String,
      parameters: Parameters): Source = new OneBatch(HistorySource.frame(parameters))
}

object HistorySource {
  private val Key = "history"
  private val frames = new ConcurrentHashMap[String, Dataset[_]]

  /** Keep a DataFrame for queries, and return the name by which `stream` finds it. */
  def add(frame: Dataset[_]): String = {
    val name = UUID.randomUUID().toString
    frames.put(name, frame)
    name
  }

  def remove(name: String): Unit = {
    val _ = frames.remove(name)
  }

  /** Return a streaming DataFrame with the rows of an added DataFrame. */
  def stream(reader: DataStreamReader, name: String): DataFrame = {
    val thread = Thread.currentThread
    val loader = thread.getContextClassLoader
    // Spark finds the class by the thread's class loader, which may not know this jar.
    thread.setContextClassLoader(getClass.getClassLoader)
    try reader.format(classOf[HistorySource].getName).option(Key, name).load()
    finally thread.setContextClassLoader(loader)
  }

  private def frame(parameters: Map[String, String]): Dataset[_] = frames.get(parameters(Key))
}

/** Spark runs micro-batches without rows at the end only if the source has its end prepared. */
private final class OneBatch(frame: Dataset[_]) extends Source with SupportsTriggerAvailableNow {
  override def schema: StructType = InternalFrames.nullable(frame.schema)
  override def getOffset: Option[Offset] = Some(new OneBatch.End)
  override def latestOffset(start: StreamingOffset, limit: ReadLimit): StreamingOffset =
    new OneBatch.End
  override def prepareForTriggerAvailableNow(): Unit = {}
  override def stop(): Unit = {}

  override def getBatch(start: Option[Offset], end: Offset): DataFrame =
    InternalFrames.microBatch(frame)
}

private object OneBatch {
  final class End extends Offset {
    override val json: String = "1"
  }
}
