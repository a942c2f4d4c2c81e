package sparklog.sink

import java.io.IOException
import java.nio.{ByteBuffer, ByteOrder}
import java.nio.file.{Files, Paths}

import com.fasterxml.jackson.databind.ObjectMapper

import org.apache.spark.TaskContext
import org.apache.spark.api.java.JavaRDD
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.classic.Dataset
import org.apache.spark.sql.execution.{LogicalRDD, SQLExecution}
import org.apache.spark.sql.functions.col
import org.apache.spark.sql.types.StructType

import sparklog.AnswerFile

/**
 * Runs jobs whose tasks stage the rows of a micro-batch. Called by Python
 * (sparklog/sink/jvm_job.py).
 */
object StageJob {
  /**
   * Stage the rows of `df`. Return the answers of the tasks in order, each after its length (u32,
   * little-endian). The job runs in the caller's thread, with the job group, description and
   * properties of that thread.
   *
   * @param planJson the plan of sparklog/sink/jvm_plan.py
   * @param inMemory maximum bytes of a task that must not write files; 0: tasks may write files
   * @param into the file for the answers: see AnswerFile
   */
  def run(df: Dataset[_], planJson: Array[Byte], inMemory: Long, into: String): Array[Byte] = {
    val narrow = narrowed(df, StagePlan.parse(planJson).columns)
    val function = new StageRows(planJson, narrow.schema, inMemory)
    val answers = narrow.queryExecution.withCachedData match {
      // A micro-batch of foreachBatch is an RDD already and belongs to the query's execution;
      // planning it again would copy its rows.
      case rows: LogicalRDD => answered(rows.rdd, function)
      case _ =>
        val execution = narrow.queryExecution
        SQLExecution.withNewExecutionId(execution, Some("sparklog")) {
          answered(execution.toRdd, function)
        }
    }
    AnswerFile.give(joined(answers), into)
  }

  private def answered(rows: RDD[InternalRow], function: StageRows): Array[Array[Byte]] = {
    val answers = new Array[Array[Byte]](rows.getNumPartitions)
    try {
      rows.sparkContext.runJob[InternalRow, Array[Byte]](
        rows,
        function,
        answers.indices,
        (task: Int, answer: Array[Byte]) => answers(task) = answer)
      answers
    } catch {
      case e: Throwable =>
        answers.filter(_ != null).foreach(Answer.discard)
        throw e
    }
  }

  /** Return the framed rows of `df`, for Python workers that upload them: see FramedObjects. */
  def framed(df: Dataset[_], planJson: Array[Byte]): JavaRDD[Array[Byte]] = {
    val narrow = narrowed(df, StagePlan.parse(planJson).columns)
    val schema = narrow.schema
    val parts: RDD[Array[Byte]] = narrow.queryExecution.toRdd.mapPartitionsWithIndex((task, rows) =>
      new FramedObjects(planJson, schema, task, rows))
    parts.toJavaRDD()
  }

  /** Select only the columns to write, unless all columns are computed already. */
  private def narrowed(df: Dataset[_], columns: Array[String]): Dataset[_] = {
    val names = df.schema.fieldNames
    // A micro-batch is such an RDD. A projection would copy its rows and cost some ms to plan.
    val isPlain = df.queryExecution.analyzed.isInstanceOf[LogicalRDD] ||
      names.length == columns.length
    if (isPlain && columns.forall(column => names.count(_ == column) == 1)) df
    else df.select(columns.toIndexedSeq.map(column => col(s"`$column`")): _*)
  }

  private def joined(answers: Array[Array[Byte]]): Array[Byte] = {
    val out = ByteBuffer.allocate(answers.map(_.length + 4).sum).order(ByteOrder.LITTLE_ENDIAN)
    answers.foreach(answer => out.putInt(answer.length).put(answer))
    out.array
  }
}

/**
 * The answer of a task: a first byte for its kind, then a packed ChunkTable or an error as JSON.
 */
private[sink] object Answer {
  private val Table = Array[Byte](0)
  private val Error: Byte = 1
  private val TooMuch: Byte = 2

  def table(chunks: java.util.ArrayList[Chunk]): Array[Byte] = ChunkTable.pack(chunks, Table)

  def tableWithoutData(chunks: java.util.ArrayList[Chunk]): Array[Byte] =
    ChunkTable.packWithoutData(chunks, Table)

  /** Return an error that the user has to correct, as an answer. */
  def error(e: StageError): Array[Byte] = {
    // If the error were thrown, Spark would retry the task four times.
    val json = new ObjectMapper().createObjectNode()
    json.put("error", e.kind).put("message", e.getMessage)
    if (e.path != null) json.put("path", e.path)
    Error +: json.toString.getBytes("UTF-8")
  }

  def tooMuch: Array[Byte] = Array(TooMuch)

  /**
   * Delete the files of a task whose job has failed. The service deletes files later that can't be
   * deleted now.
   */
  def discard(answer: Array[Byte]): Unit = if (answer(0) == Table(0)) {
    ChunkTable.paths(answer, 1).foreach { path =>
      try Files.deleteIfExists(Paths.get(path))
      catch { case _: IOException => }
    }
  }
}

/** The function of a job that stages rows. */
private[sink] final class StageRows(planJson: Array[Byte], schema: StructType, inMemory: Long)
    extends ((TaskContext, Iterator[InternalRow]) => Array[Byte]) with Serializable {
  override def apply(context: TaskContext, rows: Iterator[InternalRow]): Array[Byte] =
    try {
      val plan = StagePlan.parse(planJson)
      val number = context.partitionId()
      val task =
        if (inMemory == 0) StageTask.inFiles(plan, schema, number)
        else new StageTask(plan, schema, number, new ChunksInMemory(inMemory))
      while (rows.hasNext) task.add(rows.next())
      Answer.table(task.finish())
    } catch {
      case e: StageError if !e.isRetriable => Answer.error(e)
      case _: TooMuchStaged => Answer.tooMuch
    }
}
