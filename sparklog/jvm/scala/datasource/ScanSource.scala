package sparklog.datasource

import scala.collection.mutable

import org.apache.spark.sql.execution.datasources.v2.python.{
  PythonAccess, PythonDataSourceCreationResult, PythonDataSourceReadInfo, PythonDataSourceV2
}
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

import sparklog.DefaultSource

/**
 * What Python planned for all batch reads of a table. As Spark has it for a Python source, the
 * first plan stands: who reads a DataFrame twice reads the same offsets.
 */
private[datasource] final class ReadPlans(val source: DefaultSource, val name: String) {
  private var partitions: Seq[Array[Byte]] = _
  private val functions = mutable.Map[StructType, Array[Byte]]()

  /** The plan, and Python's function that reads columns of `schema`. */
  def info(schema: StructType, options: CaseInsensitiveStringMap): PythonDataSourceReadInfo =
    synchronized {
      val function = functions.getOrElseUpdate(
        schema, {
          val created = source.getOrCreateDataSourceInPython(name, options, Some(schema))
          val made = PythonAccess.source(source).createReadInfoInPython(created, schema, false)
          if (partitions == null) partitions = made.partitions
          made.func
        }
      )
      PythonDataSourceReadInfo(function, partitions)
    }
}

/**
 * The Python source as one scan sees it: filters that this scan pushed down are no other's, which
 * share the rest.
 */
private[datasource] final class ScanSource(plans: ReadPlans, val options: CaseInsensitiveStringMap)
    extends PythonDataSourceV2 {
  val name: String = plans.name
  setShortName(name)

  private var pushed: PythonDataSourceReadInfo = _

  /** Python read the filters, and what it gives has the table's whole schema. */
  def hasPushed: Boolean = pushed != null

  override def getOrCreateDataSourceInPython(
      name: String,
      options: CaseInsensitiveStringMap,
      schema: Option[StructType]): PythonDataSourceCreationResult =
    plans.source.getOrCreateDataSourceInPython(name, options, schema)

  override def setReadInfo(info: PythonDataSourceReadInfo): Unit = pushed = info

  override def getOrCreateReadInfo(
      name: String,
      options: CaseInsensitiveStringMap,
      schema: StructType,
      isStreaming: Boolean): PythonDataSourceReadInfo =
    if (pushed != null) pushed else plans.info(schema, options)
}
