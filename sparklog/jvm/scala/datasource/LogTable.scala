package sparklog.datasource

import java.util.{Map => JavaMap, Set => JavaSet}

import org.apache.spark.sql.connector.catalog.{Column, SupportsRead, SupportsWrite, TableCapability}
import org.apache.spark.sql.connector.catalog.constraints.Constraint
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.connector.read.ScanBuilder
import org.apache.spark.sql.connector.write.{LogicalWriteInfo, WriteBuilder}
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** The log as a table: the Python source's in all, but for who moves the bytes. */
final class LogTable(python: PythonTable) extends SupportsRead with SupportsWrite {
  override def name(): String = python.name()
  override def id(): String = python.id()
  override def schema(): StructType = python.schema()
  override def columns(): Array[Column] = python.columns()
  override def partitioning(): Array[Transform] = python.partitioning()
  override def properties(): JavaMap[String, String] = python.properties()
  override def capabilities(): JavaSet[TableCapability] = python.capabilities()
  override def constraints(): Array[Constraint] = python.constraints()
  override def version(): String = python.version()

  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder =
    new LogScanBuilder(python.newScanBuilder(options))

  override def newWriteBuilder(info: LogicalWriteInfo): WriteBuilder =
    new LogWriteBuilder(python.newWriteBuilder(info))

  override def toString: String = name()
}
