package sparklog.datasource

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.connector.write._
import org.apache.spark.sql.connector.write.streaming.{StreamingDataWriterFactory, StreamingWrite}

/**
 * A batch write, which Python plans and commits. The tasks stage rows in the JVM if the plan is for
 * the JVM.
 */
private[datasource] final class LogBatchWrite(
    python: BatchWrite, info: LogicalWriteInfo, dataPath: DataPath)
    extends BatchWrite {
  override def createBatchWriterFactory(physical: PhysicalWriteInfo): DataWriterFactory = {
    val factory = python.createBatchWriterFactory(physical)
    val planned = PlannedWrite.of(python, info)
    dataPath.say(null, planned.what, planned.dataPath)
    planned.factory.getOrElse(factory)
  }

  override def useCommitCoordinator(): Boolean = python.useCommitCoordinator
  override def onDataWriterCommit(message: WriterCommitMessage): Unit =
    python.onDataWriterCommit(message)
  override def commit(messages: Array[WriterCommitMessage]): Unit = python.commit(messages)
  override def abort(messages: Array[WriterCommitMessage]): Unit = python.abort(messages)
}

/** The writes of a streaming query's micro-batches, planned and committed like a LogBatchWrite. */
private[datasource] final class LogStreamingWrite(
    python: StreamingWrite, info: LogicalWriteInfo, dataPath: DataPath)
    extends StreamingWrite {
  override def createStreamingWriterFactory(
      physical: PhysicalWriteInfo): StreamingDataWriterFactory = {
    val factory = python.createStreamingWriterFactory(physical)
    val planned = PlannedWrite.of(python, info)
    val run = CallerOptions.run(SparkSession.active.sparkContext)
    dataPath.say(run, planned.what, planned.dataPath)
    planned.factory.getOrElse(factory)
  }

  override def useCommitCoordinator(): Boolean = python.useCommitCoordinator
  override def commit(epoch: Long, messages: Array[WriterCommitMessage]): Unit =
    python.commit(epoch, messages)
  override def abort(epoch: Long, messages: Array[WriterCommitMessage]): Unit =
    python.abort(epoch, messages)
}
