package org.apache.spark.sql.execution.datasources.v2.python

import org.apache.spark.QueryContext
import org.apache.spark.api.python.PythonException

/** What Spark keeps to this package of a Python data source, for sparklog.datasource. */
object PythonAccess {
  def source(provider: PythonDataSourceV2): UserDefinedPythonDataSource = provider.source

  /** What Spark throws where a Python worker raised `message`. */
  def error(message: String, stack: Array[StackTraceElement]): RuntimeException = {
    val made = new PythonException(
      message, null, Some("PYTHON_EXCEPTION"), Map.empty[String, String], Array.empty[QueryContext])
    made.setStackTrace(stack)
    made
  }
}
