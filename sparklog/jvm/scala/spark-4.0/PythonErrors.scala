package org.apache.spark.sql.execution.datasources.v2.python

import org.apache.spark.api.python.PythonException

/** Errors of Python workers. They have error conditions since Spark 4.2. */
object PythonErrors {
  // pyspark converts only errors that have a frame of this package (exceptions/captured.py).
  private val Frame =
    new StackTraceElement("org.apache.spark.sql.execution.python.Worker", "write", null, -1)

  /** Return the exception that Spark throws for the error `message` of a Python worker. */
  def error(message: String, stack: Array[StackTraceElement]): PythonException = {
    val made = new PythonException(message, null)
    made.setStackTrace(stack :+ Frame)
    made
  }
}
