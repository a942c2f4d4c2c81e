package sparklog

import java.util.{Map => JavaMap}

import org.apache.spark.sql.AnalysisException
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.connector.catalog.{SessionConfigSupport, Table}
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.execution.datasources.v2.python.{
  PythonAccess, PythonDataSourceCreationResult, PythonDataSourceV2
}
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

import sparklog.datasource.{CallerOptions, LogTable}

/**
 * The data source `format("sparklog")` if this jar is loaded: Spark looks for a class
 * `<format>.DefaultSource` before it looks for a Python source with that name
 * (DataSource.lookupDataSource, Spark 4.3).
 *
 * This class wraps the Python source, and Spark treats it as a Python source: schema, options,
 * offsets, planning and commits are handled in Python, and the bytes are moved in the JVM.
 */
final class DefaultSource extends PythonDataSourceV2 with SessionConfigSupport {
  Version.check()
  DefaultSource.refuseCatalog()

  /**
   * The name of the wrapped Python source: the one that `sparklog.register` has registered in the
   * session, if there is one; else the one that Spark finds in an installed package.
   */
  private[sparklog] lazy val pythonName: String = {
    val manager = SparkSession.active.sessionState.dataSourceManager
    val name = if (manager.dataSourceExists(DefaultSource.Registered)) DefaultSource.Registered
    else keyPrefix
    super.setShortName(name)
    name
  }

  /** Does nothing: another session may be active than when the Python source is looked up. */
  override def setShortName(format: String): Unit = {}

  /** The conf `spark.datasource.sparklog.X` of the session is the default of option X. */
  override def keyPrefix: String = "sparklog"

  override def getOrCreateDataSourceInPython(
      name: String,
      options: CaseInsensitiveStringMap,
      schema: Option[StructType]): PythonDataSourceCreationResult = {
    super.getOrCreateDataSourceInPython(pythonName, CallerOptions.planning(options), schema)
  }

  /**
   * Throw an IllegalArgumentException if Spark does not find the wrapped Python source. The first
   * call determines the Python source permanently, from the session that is active then.
   */
  private[sparklog] def checkPackage(): Unit =
    try {
      pythonName
      PythonAccess.source(this)
    } catch {
      case e: AnalysisException if e.getCondition == DefaultSource.NotFound =>
        throw new IllegalArgumentException(DefaultSource.NoPackage)
    }

  override def inferSchema(options: CaseInsensitiveStringMap): StructType = {
    checkPackage()
    CallerOptions.check(options)
    super.inferSchema(options)
  }

  override def getTable(
      schema: StructType,
      partitioning: Array[Transform],
      properties: JavaMap[String, String]): Table = {
    val options = new CaseInsensitiveStringMap(properties)
    CallerOptions.check(options)
    // No checkPackage() here: df.write calls getTable while another session may be active (Spark
    // 4.3), whose Python source would then be used permanently.
    val python = new PythonDataSourceV2
    python.setShortName(keyPrefix)
    val table = python.getTable(schema, partitioning, properties)
    new LogTable(this, table, CallerOptions.jvm(options))
  }

  /** Shown in plans. */
  override def toString: String = "sparklog"
}

private object DefaultSource {
  private val Registered = "sparklog_python" // see sparklog/datasource.py
  private val Analyzer = "org.apache.spark.sql.catalyst.analysis.ResolveSessionCatalog"
  private val Frames = 16L
  private val NoTables =
    "format(\"sparklog\") can't be a table of Spark's catalog, which does not pass a table's " +
      "options to the data source; no table was created or replaced. To write, set the options " +
      "path and topic and call save() on df.write.format(\"sparklog\").mode(\"append\"), or " +
      "start() on df.writeStream.format(\"sparklog\"). To read by a name, use CREATE TEMPORARY " +
      "VIEW name USING sparklog OPTIONS (path '...', subscribe '...')"
  private val NotFound = "DATA_SOURCE_NOT_EXIST"
  private val NoPackage = "this session has sparklog's jar, but the driver's Python " +
    "(PYSPARK_DRIVER_PYTHON, or else PYSPARK_PYTHON) does not have the sparklog package. If the " +
    "package was shipped with --py-files or addPyFile, call sparklog.register(spark); else " +
    "install it for that Python"

  /**
   * Throw an IllegalArgumentException if Spark is analyzing a statement that would create or
   * replace a table of its catalog.
   */
  private def refuseCatalog(): Unit = {
    // The analyzer creates an object of this class only for such statements
    // (ResolveSessionCatalog.isV2Provider, Spark 4.3). A later error would lose data, because Spark
    // drops a replaced table before it creates the new one (ReplaceTableAsSelectExec).
    val isAnalyzed = StackWalker.getInstance().walk[java.lang.Boolean](
      _.limit(Frames).anyMatch(_.getClassName == Analyzer))
    if (isAnalyzed) throw new IllegalArgumentException(NoTables)
  }
}
