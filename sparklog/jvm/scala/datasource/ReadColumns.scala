package sparklog.datasource

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{BoundReference, UnsafeProjection}
import org.apache.spark.sql.connector.metric.CustomTaskMetric
import org.apache.spark.sql.connector.read.PartitionReader
import org.apache.spark.sql.types.StructType

/** Which columns Python reads, and how those wanted come out of them. */
private[datasource] object ReadColumns {
  private val Cheap = Seq("partition", "offset", "timestampType", "timestamp", "topic")

  /** What Python is asked for: a column at least, for rows of none can't come from it. */
  def ofPython(schema: StructType, wanted: StructType): StructType =
    if (wanted.nonEmpty || schema.isEmpty) wanted
    else {
      val names = schema.fieldNames.toSet
      StructType(Seq(schema(Cheap.find(names).getOrElse(schema.fieldNames.head))))
    }

  /** For each column of `wanted`, where in `given` it is; null if the two are the same. */
  def references(given: StructType, wanted: StructType): Array[BoundReference] =
    if (given == wanted) null
    else wanted.fields.map { field =>
      BoundReference(given.fieldIndex(field.name), field.dataType, field.nullable)
    }
}

/** Rows of another reader, with those columns only. */
private[datasource] final class ProjectedReader(
    reader: PartitionReader[InternalRow], columns: Array[BoundReference])
    extends PartitionReader[InternalRow] {
  private val projection = UnsafeProjection.create(columns.toSeq)

  override def next(): Boolean = reader.next()
  override def get(): InternalRow = projection(reader.get())
  override def currentMetricsValues(): Array[CustomTaskMetric] = reader.currentMetricsValues()
  override def initMetricsValues(metrics: Array[CustomTaskMetric]): Unit =
    reader.initMetricsValues(metrics)
  override def close(): Unit = reader.close()
}
