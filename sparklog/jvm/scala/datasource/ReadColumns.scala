package sparklog.datasource

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{BoundReference, UnsafeProjection}
import org.apache.spark.sql.connector.metric.CustomTaskMetric
import org.apache.spark.sql.connector.read.PartitionReader
import org.apache.spark.sql.types.StructType

/** The columns that Python reads, and their projection to the wanted ones. */
private[datasource] object ReadColumns {
  private val Cheap = Seq("partition", "offset", "timestampType", "timestamp", "topic")

  /** Return the columns that Python reads for the `wanted` ones: at least one. */
  def ofPython(schema: StructType, wanted: StructType): StructType =
    // Python can't return rows without columns, as count() wants them.
    if (wanted.nonEmpty || schema.isEmpty) wanted
    else {
      val names = schema.fieldNames.toSet
      StructType(Seq(schema(Cheap.find(names).getOrElse(schema.fieldNames.head))))
    }

  /** Return the index in `given` of each column of `wanted`; null if both schemas are the same. */
  def references(given: StructType, wanted: StructType): Array[BoundReference] =
    if (given == wanted) null
    else wanted.fields.map { field =>
      BoundReference(given.fieldIndex(field.name), field.dataType, field.nullable)
    }
}

/** Returns the rows of another reader, with only the given columns. */
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
