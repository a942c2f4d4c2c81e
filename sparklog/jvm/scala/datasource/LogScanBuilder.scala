package sparklog.datasource

import org.apache.spark.sql.connector.read.{Scan, ScanBuilder, SupportsPushDownFilters}
import org.apache.spark.sql.sources.Filter

/** Plans a read; filters are the Python source's. */
final class LogScanBuilder(python: ScanBuilder) extends SupportsPushDownFilters {
  private val filtering = python.asInstanceOf[SupportsPushDownFilters]

  override def pushFilters(filters: Array[Filter]): Array[Filter] = filtering.pushFilters(filters)
  override def pushedFilters(): Array[Filter] = filtering.pushedFilters()
  override def build(): Scan = new LogScan(python.build())
}
