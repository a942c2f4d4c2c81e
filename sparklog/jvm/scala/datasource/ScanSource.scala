package sparklog.datasource

import scala.collection.mutable

import org.apache.spark.sql.execution.datasources.v2.python.{
  PythonAccess, PythonDataSourceCreationResult, PythonDataSourceReadInfo, PythonReads
}
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

import sparklog.DefaultSource

/**
 * Python's plan for all batch reads of a table. As in Spark's Python sources, the first plan is
 * used again, so that reading a DataFrame twice reads the same offsets.
 */
private[datasource] final class ReadPlans(val source: DefaultSource) {
  private var partitions: Seq[Array[Byte]] = _
  private val functions = mutable.Map[StructType, Array[Byte]]()

  /** Return the plan, and Python's function that reads the columns of `schema`. */
  def info(schema: StructType, options: CaseInsensitiveStringMap): PythonDataSourceReadInfo =
    synchronized {
      val function = functions.getOrElseUpdate(
        schema, {
          val name = source.pythonName
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
 * The Python source for a single scan. Filters that were pushed down apply to this scan only; all
 * scans share the plan of the table.
 */
private[datasource] final class ScanSource(plans: ReadPlans, val options: CaseInsensitiveStringMap)
    extends PythonReads.Source {
  val name: String = plans.source.pythonName
  setShortName(name)
  // Now, while Spark plans the query. When Spark executes the scan, another session may be active,
  // in which this Python source is not registered.
  PythonAccess.source(this)

  private var pushed: PythonDataSourceReadInfo = _

  /** Whether filters were pushed down. Rows from Python then have the whole schema of the table. */
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
