package org.apache.spark.sql.execution.datasources.v2.python

import org.apache.spark.QueryContext
import org.apache.spark.api.python.PythonException

/**
 * Gives sparklog.datasource access to parts of Spark's Python data sources that are private to this
 * package of Spark.
 */
object PythonAccess {
  def source(provider: PythonDataSourceV2): UserDefinedPythonDataSource = provider.source

  /** Return the exception that Spark throws for the error `message` of a Python worker. */
  def error(message: String, stack: Array[StackTraceElement]): RuntimeException = {
    val made = new PythonException(
      message, null, Some("PYTHON_EXCEPTION"), Map.empty[String, String], Array.empty[QueryContext])
    made.setStackTrace(stack)
    made
  }
}
