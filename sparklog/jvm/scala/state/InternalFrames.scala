package org.apache.spark.sql.execution.streaming

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.Row
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Alias, KnownNullable}
import org.apache.spark.sql.catalyst.plans.logical.Project
import org.apache.spark.sql.classic.{Dataset, SparkSession}
import org.apache.spark.sql.types.StructType

/**
 * Makes DataFrames of internal rows. In a package of Spark, because Spark's methods are private.
 */
object InternalFrames {
  def create(session: SparkSession, rows: RDD[InternalRow], schema: StructType): Dataset[_] =
    session.internalCreateDataFrame(rows, schema, isStreaming = false)

  /**
   * Return the rows of a DataFrame as those of a micro-batch. Spark must take no column for one
   * without nulls: a query whose plan infers less would not accept the state (Spark 4.0 to 4.2).
   */
  def microBatch(frame: Dataset[_]): Dataset[Row] = {
    val session = frame.sparkSession
    val rows = session.internalCreateDataFrame(
      frame.queryExecution.toRdd,
      nullable(frame.schema),
      isStreaming = true)
    val plan = rows.queryExecution.analyzed
    val columns = plan.output.map(column => Alias(KnownNullable(column), column.name)())
    Dataset.ofRows(session, Project(columns, plan))
  }

  def nullable(schema: StructType): StructType = schema.asNullable
}
