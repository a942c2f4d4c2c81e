package org.apache.spark.sql.execution.streaming

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.classic.{Dataset, SparkSession}
import org.apache.spark.sql.types.StructType

/** Makes DataFrames of internal rows. In a package of Spark, because Spark's method is private. */
object InternalFrames {
  def create(
      session: SparkSession,
      rows: RDD[InternalRow],
      schema: StructType,
      isStreaming: Boolean): Dataset[_] =
    session.internalCreateDataFrame(rows, schema, isStreaming)
}
