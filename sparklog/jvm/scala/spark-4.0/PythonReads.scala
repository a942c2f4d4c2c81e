package org.apache.spark.sql.execution.datasources.v2.python

import org.apache.spark.JobArtifactSet
import org.apache.spark.sql.connector.read.{Batch, InputPartition, PartitionReaderFactory}
import org.apache.spark.sql.internal.connector.SupportsMetadata
import org.apache.spark.sql.sources.Filter
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** Batch reads of Python data sources, which accept no filters in Spark 4.0. */
object PythonReads {
  /** A Python data source with the methods that Spark calls since version 4.1. */
  abstract class Source extends PythonDataSourceV2 {
    def setReadInfo(info: PythonDataSourceReadInfo): Unit
    def getOrCreateReadInfo(
        name: String,
        options: CaseInsensitiveStringMap,
        schema: StructType,
        isStreaming: Boolean): PythonDataSourceReadInfo
  }

  /** Accepts no filter, so that Spark evaluates all of them. */
  final class Builder(
      source: Source, name: String, schema: StructType, options: CaseInsensitiveStringMap) {
    def pushFilters(filters: Array[Filter]): Array[Filter] = filters
    def pushedFilters(): Array[Filter] = Array.empty
  }

  def scan(
      source: PythonDataSourceV2,
      name: String,
      schema: StructType,
      options: CaseInsensitiveStringMap,
      filters: Array[Filter]): PythonScan with SupportsMetadata =
    new PythonScan(source, name, schema, options) with SupportsMetadata {
      override def getMetaData(): Map[String, String] = Map.empty
    }

  /** Return a batch that asks `source` for the plan; PythonBatch would plan each read anew. */
  def batch(
      source: Source, name: String, schema: StructType, options: CaseInsensitiveStringMap): Batch =
    new Batch {
      private lazy val info = source.getOrCreateReadInfo(name, options, schema, false)

      override def planInputPartitions(): Array[InputPartition] =
        info.partitions.zipWithIndex.map { case (pickled, i) => PythonInputPartition(i, pickled) }
          .toArray

      override def createReaderFactory(): PartitionReaderFactory = new PythonPartitionReaderFactory(
        source.source, info.func, schema, JobArtifactSet.getCurrentJobArtifactState.map(_.uuid))
    }
}
