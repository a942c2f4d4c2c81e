package sparklog.state

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.ObjectMapper
import org.apache.hadoop.fs.{FileSystem, FileUtil, Path}

import org.apache.spark.{Partitioner, SparkException}
import org.apache.spark.rdd.{RDD, ShuffledRDD}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow
import org.apache.spark.sql.classic.{Dataset, SparkSession}
import org.apache.spark.sql.execution.UnsafeRowSerializer
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec
import org.apache.spark.sql.execution.exchange.Exchange
import org.apache.spark.sql.execution.streaming.InternalFrames
import org.apache.spark.sql.execution.streaming.state.StateStoreId
import org.apache.spark.sql.types.{IntegerType, StructType}
import org.apache.spark.util.SerializableConfiguration

/**
 * Reads and writes the state of an operator in a checkpoint of Spark's own files, through Spark's
 * state store providers. Called by Python (sparklog/state/tables.py).
 */
object StateTables {
  private val mapper = new ObjectMapper

  /**
   * Return a family as a DataFrame (partition_id, key, value), like Spark's reader `statestore`.
   */
  def table(spark: SparkSession, planJson: String, store: String, family: String): Dataset[_] = {
    val (plan, conf, hadoop) = parsed(spark, planJson)
    val index = plan.indexOf(store, family)
    val schema = new StructType()
      .add("partition_id", IntegerType)
      .add("key", plan.families(index).key)
      .add("value", plan.families(index).value)
    val rows = new StateRows(spark.sparkContext, plan, Set(index), conf, hadoop)
    InternalFrames.create(
      spark,
      rows.mapPartitionsWithIndex { (partition, found) =>
        found.map { row =>
          new GenericInternalRow(Array[Any](partition, row.key.copy(), row.value.copy()))
        }
      },
      schema
    )
  }

  /**
   * Return rows and hash of each partition of a family, as JSON: [[[rows, hash], ...], ...]. Fails
   * if a row is in the wrong partition.
   *
   * @param tolerant return the reason as text for a partition that can't be read
   */
  def digests(spark: SparkSession, planJson: String, tolerant: Boolean): String = {
    val (plan, conf, hadoop) = parsed(spark, planJson)
    val all = plan.families.indices.toSet
    val rows = new StateRows(spark.sparkContext, plan, all, conf, hadoop)
    val found = spark.sparkContext.runJob(rows, StateJob.digest(plan, tolerant) _)
    mapper.writeValueAsString(found.map(_.fold[Any](identity, StateJob.numbers)).toSeq.asJava)
  }

  /**
   * Write the state of an operator into new stores, and return a JSON object for each partition.
   *
   * @param fromJson the state to read
   * @param toJson the state to write; version 1 is written, and renamed to the plan's version
   * @param replaced for some families other rows, as DataFrames (key, value)
   * @param names store and family of each DataFrame in `replaced`
   */
  def write(
      spark: SparkSession,
      fromJson: String,
      toJson: String,
      replaced: java.util.List[Dataset[_]],
      names: java.util.List[java.util.List[String]]): String = {
    val (from, fromConf, hadoop) = parsed(spark, fromJson)
    val (to, toConf, _) = parsed(spark, toJson)
    val indices = names.asScala.map(name => to.indexOf(name.get(0), name.get(1))).toSeq
    // A changed query may have fewer families, and others.
    val numbers = from.families.map(family => to.indexOf(family.store, family.name))
    val kept = from.families.indices.filter { index =>
      numbers(index) >= 0 && !indices.contains(numbers(index))
    }.toSet
    val staysWhole = from.partitions == to.partitions
    val moved = new StateRows(spark.sparkContext, from, kept, fromConf, hadoop)
      .mapPartitions { rows =>
        StateJob.packed(to, rows.map(row => row.copy(family = numbers(row.family))))
      }
    val job = new StateJob(to, toConf, hadoop, indices.toSet)
    val frames = replaced.asScala.zip(indices).toSeq

    def run(narrow: Boolean): Array[WrittenPartition] = {
      val given = frames.map { case (frame, index) =>
        val rows = frame.queryExecution.toRdd
        val packed =
          rows.mapPartitions(found => StateJob.packed(to, StateJob.given(to, index, found)))
        if (narrow && staysInPlace(frame, rows, to)) inPlace(packed, to) else shuffled(packed, to)
      }
      val all = if (staysWhole) inPlace(moved, to) else shuffled(moved, to)
      val rows = given.foldLeft(all)((left, right) => left.zipPartitions(right)(_ ++ _))
      spark.sparkContext.runJob(rows, job.write _)
    }
    val written =
      try run(narrow = true)
      catch {
        // A function changed keys, so that rows belong to other partitions.
        case e: SparkException if String.valueOf(e.getMessage).contains(StateJob.Misplaced) =>
          val root = new Path(to.root)
          val _ = root.getFileSystem(hadoop.value).delete(root, true)
          run(narrow = false)
      }
    rename(to, written.toIndexedSeq, hadoop)
    mapper.writeValueAsString(written.map(_.toMap).toSeq.asJava)
  }

  /** Copy a directory to another place, by the session's file systems. */
  def copy(spark: SparkSession, from: String, to: String): Unit = {
    val hadoop = spark.sessionState.newHadoopConf()
    val (source, target) = (new Path(from), new Path(to))
    val _ = FileUtil.copy(
      source.getFileSystem(hadoop),
      source,
      target.getFileSystem(hadoop),
      target,
      false,
      hadoop)
  }

  def delete(spark: SparkSession, directory: String): Unit = {
    val path = new Path(directory)
    val _ = path.getFileSystem(spark.sessionState.newHadoopConf()).delete(path, true)
  }

  /** Whether a function's rows can stay in their partitions: it shuffles nothing. */
  private def staysInPlace(frame: Dataset[_], rows: RDD[InternalRow], to: StatePlan): Boolean =
    rows.getNumPartitions == to.partitions && !frame.queryExecution.executedPlan.exists {
      case _: Exchange | _: AdaptiveSparkPlanExec => true
      case _ => false
    }

  private def inPlace(rows: RDD[(Int, InternalRow)], plan: StatePlan): RDD[InternalRow] =
    rows.mapPartitions(found => StateJob.inPlace(plan, found))

  private def shuffled(rows: RDD[(Int, InternalRow)], plan: StatePlan): RDD[InternalRow] =
    new ShuffledRDD[Int, InternalRow, InternalRow](rows, new StatePartitioner(plan.partitions))
      .setSerializer(new UnsafeRowSerializer(3)).map(_._2)

  /**
   * Give the files of version 1 the names of the plan's version. A file does not contain the
   * version. The delta of the HDFS-backed provider that begins with an empty store has the format
   * of a snapshot.
   */
  private def rename(
      plan: StatePlan,
      written: IndexedSeq[WrittenPartition],
      hadoop: SerializableConfiguration): Unit = for {
    (partition, number) <- written.zipWithIndex
    (store, id) <- partition.ids
  } {
    val directory =
      StateStoreId(plan.root, plan.operator, number, store).storeCheckpointLocation()
    val fs: FileSystem = directory.getFileSystem(hadoop.value)
    val suffix = if (id.isEmpty) "" else s"_$id"
    for ((old, kind) <- Seq("zip" -> "zip", "delta" -> "snapshot")) {
      val file = new Path(directory, s"1$suffix.$old")
      if (fs.exists(file)) {
        val _ = fs.rename(file, new Path(directory, s"${plan.version}$suffix.$kind"))
      }
    }
  }

  private def parsed(spark: SparkSession, json: String) = {
    val hadoop = spark.sessionState.newHadoopConf()
    val plan = StatePlan.parse(json, hadoop)
    (
      plan,
      OpenStores.conf(spark.sessionState.conf, plan.conf),
      new SerializableConfiguration(hadoop))
  }
}

private final class StatePartitioner(override val numPartitions: Int) extends Partitioner {
  override def getPartition(key: Any): Int = key.asInstanceOf[Int]
}
