package org.apache.spark.sql.execution.datasources.v2.python

import org.apache.spark.sql.connector.read.Batch
import org.apache.spark.sql.sources.Filter
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** Batch reads of Python data sources, which accept filters since Spark 4.1. */
object PythonReads {
  type Source = PythonDataSourceV2
  type Builder = PythonScanBuilder

  def scan(
      source: Source,
      name: String,
      schema: StructType,
      options: CaseInsensitiveStringMap,
      filters: Array[Filter]): PythonScan =
    new PythonScan(source, name, schema, options, filters)

  def batch(
      source: Source, name: String, schema: StructType, options: CaseInsensitiveStringMap): Batch =
    new PythonBatch(source, name, schema, options)
}
