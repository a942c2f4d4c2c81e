package sparklog

import java.util.{Map => JavaMap}

import org.apache.spark.sql.connector.catalog.Table
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.execution.datasources.v2.python.{PythonDataSourceV2, PythonTable}
import org.apache.spark.sql.types.StructType

import sparklog.datasource.LogTable

/**
 * `format("sparklog")` where this jar is loaded: Spark looks for a class `<format>.DefaultSource`
 * before it asks for a Python source of that name (DataSource.lookupDataSource, Spark 4.3).
 *
 * It is that Python source, and what Spark does for one it does for this: it thinks in Python
 * (schema, options, offsets, planning, commits), and moves the bytes in the JVM.
 */
final class DefaultSource extends PythonDataSourceV2 {
  override def getTable(
      schema: StructType,
      partitioning: Array[Transform],
      properties: JavaMap[String, String]): Table =
    super.getTable(schema, partitioning, properties) match {
      case python: PythonTable => new LogTable(python)
      case other => other
    }

  /** A plan shows it. */
  override def toString: String = "sparklog"
}
