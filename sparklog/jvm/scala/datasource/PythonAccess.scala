package org.apache.spark.sql.execution.datasources.v2.python

import org.apache.spark.QueryContext
import org.apache.spark.api.python.PythonException

/**
 * Parts of Spark's Python data sources that only this package can access, for sparklog.datasource.
 */
object PythonAccess {
  def source(provider: PythonDataSourceV2): UserDefinedPythonDataSource = provider.source

  /** The exception that Spark throws for `message` from a Python worker. */
  def error(message: String, stack: Array[StackTraceElement]): RuntimeException = {
    val made = new PythonException(
      message, null, Some("PYTHON_EXCEPTION"), Map.empty[String, String], Array.empty[QueryContext])
    made.setStackTrace(stack)
    made
  }
}
