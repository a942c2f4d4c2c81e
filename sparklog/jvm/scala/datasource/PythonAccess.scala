package org.apache.spark.sql.execution.datasources.v2.python

/** What Spark keeps to this package of a Python data source, for sparklog.datasource. */
object PythonAccess {
  def source(provider: PythonDataSourceV2): UserDefinedPythonDataSource = provider.source
}
