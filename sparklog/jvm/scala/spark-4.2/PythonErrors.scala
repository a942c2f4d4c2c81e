package org.apache.spark.sql.execution.datasources.v2.python

import org.apache.spark.QueryContext
import org.apache.spark.api.python.PythonException

/** Errors of Python workers, with the error condition that Spark has for them since 4.2. */
object PythonErrors {
  /** Return the exception that Spark throws for the error `message` of a Python worker. */
  def error(message: String, stack: Array[StackTraceElement]): PythonException = {
    val made = new PythonException(
      message, null, Some("PYTHON_EXCEPTION"), Map.empty[String, String], Array.empty[QueryContext])
    made.setStackTrace(stack)
    made
  }
}
