package sparklog.datasource

import org.apache.spark.TaskContext
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.metric.CustomTaskMetric
import org.apache.spark.sql.connector.write.{DataWriter, DataWriterFactory, WriterCommitMessage}
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory
import org.apache.spark.sql.execution.datasources.v2.python.{
  PythonErrors, PythonWriterCommitMessage
}
import org.apache.spark.sql.types.StructType

import sparklog.sink.{StageError, StagePlan, StagingDataWriter}

/**
 * Creates the writers of tasks, which stage rows in the JVM.
 *
 * @param plan the plan (JSON) of sparklog/sink/jvm_plan.py
 * @param staging the pickled staging of Python, which the commit needs
 */
private[datasource] final class StagedWriterFactory(
    plan: Array[Byte], staging: Array[Byte], schema: StructType)
    extends DataWriterFactory with StreamingDataWriterFactory {
  override def createWriter(partition: Int, task: Long): DataWriter[InternalRow] =
    writer(partition, null)

  /**
   * Create the writer of a task of a micro-batch. Its files are named after the micro-batch, so
   * that the commit can delete the files of other attempts.
   */
  override def createWriter(partition: Int, task: Long, epoch: Long): DataWriter[InternalRow] = {
    val query = StagedWriter.told(StagedWriter.Query)
    writer(partition, if (query.isEmpty) null else StagePlan.label(query, epoch))
  }

  private def writer(partition: Int, label: String): DataWriter[InternalRow] =
    try new StagedWriter(new StagingDataWriter(plan, schema, partition, label), staging)
    catch { case e: StageError => throw StagedWriter.asOfPython(e) }
}

/** Stages the rows of a task and reports them to Python's commit in the form of a Python task. */
private final class StagedWriter(stager: StagingDataWriter, staging: Array[Byte])
    extends DataWriter[InternalRow] {
  import StagedWriter._

  override def write(row: InternalRow): Unit =
    try stager.write(row)
    catch { case e: StageError => throw asOfPython(e) }

  /** Return the pickle of a `Staged` (sparklog/sink/writers.py). */
  override def commit(): WriterCommitMessage = {
    val packed =
      try stager.stage()
      catch { case e: StageError => throw asOfPython(e) }
    val out = new PickleWriter
    out.call("sparklog.sink.writers", "staged") {
      out.bytes(packed)
      out.bytes(staging)
      out.text(told(Query))
      out.text(told(Checkpoints))
    }
    PythonWriterCommitMessage(out.finish())
  }

  override def abort(): Unit = stager.abort()
  override def close(): Unit = stager.close()
  override def currentMetricsValues(): Array[CustomTaskMetric] = stager.currentMetricsValues()
}

private object StagedWriter {
  val Query = "sql.streaming.queryId"
  private val Checkpoints = "spark.sql.streaming.checkpointLocation"

  /** Return the error in the form in which Spark reports an error of a Python worker. */
  def asOfPython(e: StageError): RuntimeException =
    PythonErrors.error(e.toString, e.getStackTrace)

  def told(property: String): String = {
    val context = TaskContext.get()
    val found = if (context == null) null else context.getLocalProperty(property)
    if (found == null) "" else found
  }
}
