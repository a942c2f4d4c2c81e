package org.apache.spark.sql.execution.datasources.v2.python

/** Gives sparklog.datasource access to a part of Spark that is private to this package. */
object PythonAccess {
  def source(provider: PythonDataSourceV2): UserDefinedPythonDataSource = provider.source
}
