package sparklog

import java.util.{Map => JavaMap}

import org.apache.spark.sql.connector.catalog.{SessionConfigSupport, Table}
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.execution.datasources.v2.python.{
  PythonDataSourceCreationResult, PythonDataSourceV2
}
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

import sparklog.datasource.{CallerOptions, LogTable, Mover}

/**
 * `format("sparklog")` where this jar is loaded: Spark looks for a class `<format>.DefaultSource`
 * before it asks for a Python source of that name (DataSource.lookupDataSource, Spark 4.3).
 *
 * It is that Python source, and what Spark does for one it does for this: it thinks in Python
 * (schema, options, offsets, planning, commits), and moves the bytes in the JVM.
 */
final class DefaultSource extends PythonDataSourceV2 with SessionConfigSupport {
  /** The session's conf `spark.datasource.sparklog.X` is option X where that isn't given. */
  override def keyPrefix: String = "sparklog"

  override def getOrCreateDataSourceInPython(
      name: String,
      options: CaseInsensitiveStringMap,
      schema: Option[StructType]): PythonDataSourceCreationResult = {
    val given =
      if (CallerOptions.whyPython(options) != null) options else CallerOptions.planning(options)
    super.getOrCreateDataSourceInPython(name, given, schema)
  }

  override def inferSchema(options: CaseInsensitiveStringMap): StructType = {
    CallerOptions.check(options)
    super.inferSchema(options)
  }

  override def getTable(
      schema: StructType,
      partitioning: Array[Transform],
      properties: JavaMap[String, String]): Table = {
    val options = new CaseInsensitiveStringMap(properties)
    CallerOptions.check(options)
    val python = super.getTable(schema, partitioning, properties)
    val why = CallerOptions.whyPython(options)
    if (why == null) new LogTable(this, python)
    else {
      new Mover().say(null, CallerOptions.described(options), Mover.Python(why))
      python
    }
  }

  /** A plan shows it. */
  override def toString: String = "sparklog"
}
