package sparklog.datasource

import java.util.{Map => JavaMap, Set => JavaSet}

import org.apache.spark.sql.connector.catalog.{
  Column, SupportsRead, SupportsWrite, Table, TableCapability
}
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.connector.read.ScanBuilder
import org.apache.spark.sql.connector.read.streaming.ReportsSinkMetrics
import org.apache.spark.sql.connector.write.{LogicalWriteInfo, WriteBuilder}
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

import sparklog.DefaultSource

/**
 * The log as a table of Spark: the Python source's table with another data path. `jvm`: the option
 * of the table, which Spark does not pass to streaming writes if it comes from the session's conf.
 */
final class LogTable(source: DefaultSource, python: Table, jvm: Option[String])
    extends SupportsRead with SupportsWrite with ReportsSinkMetrics {
  private val plans = new ReadPlans(source)
  private val writer = new DataPath

  override def name(): String = source.keyPrefix
  override def schema(): StructType = python.schema()
  override def columns(): Array[Column] = python.columns()
  override def partitioning(): Array[Transform] = python.partitioning()
  override def properties(): JavaMap[String, String] = python.properties()
  override def capabilities(): JavaSet[TableCapability] = python.capabilities()

  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder = {
    source.checkPackage()
    CallerOptions.check(options)
    new LogScanBuilder(new ScanSource(plans, options), schema())
  }

  override def newWriteBuilder(info: LogicalWriteInfo): WriteBuilder = {
    source.checkPackage()
    CallerOptions.check(info.options)
    new LogWriteBuilder(source, source.pythonName, info, jvm, writer)
  }

  /** Return the data path of a streaming query's sink. */
  override def metrics(): JavaMap[String, String] = writer.metrics("writer")

  /** Shown in plans and progress. */
  override def toString: String = name()
}
