package sparklog.datasource

import org.apache.spark.sql.connector.read.{
  Scan, SupportsPushDownFilters, SupportsPushDownRequiredColumns
}
import org.apache.spark.sql.execution.datasources.v2.python.PythonReads
import org.apache.spark.sql.sources.Filter
import org.apache.spark.sql.types.StructType

/** Plans a read: the Python source accepts filters, and only the wanted columns are read. */
private[datasource] final class LogScanBuilder(source: ScanSource, schema: StructType)
    extends SupportsPushDownFilters with SupportsPushDownRequiredColumns {
  private val python = new PythonReads.Builder(source, source.name, schema, source.options)
  private var wanted = schema

  override def pushFilters(filters: Array[Filter]): Array[Filter] = python.pushFilters(filters)
  override def pushedFilters(): Array[Filter] = python.pushedFilters()
  override def pruneColumns(required: StructType): Unit = wanted = required
  override def build(): Scan = new LogScan(source, schema, wanted, python.pushedFilters())
}
