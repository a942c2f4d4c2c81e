package sparklog.datasource

import java.util.{HashMap, Locale}

import org.apache.spark.SparkContext
import org.apache.spark.sql.connector.read.streaming.Offset
import org.apache.spark.sql.execution.datasources.v2.python.PythonStreamingSourceOffset
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/**
 * The user's options for the data path, and the options that this JVM adds for the Python source
 * (see sparklog/source/jvm_caller.py). Only Python gets the added options; plans do not show them.
 */
private[sparklog] object CallerOptions {
  private val Jvm = "jvm"
  private val State = "stateOperator"
  private val Prefix = "sparklog.jvm."
  private val Plans = Prefix + "plan"
  private val Query = Prefix + "query"
  private val Run = Prefix + "run"
  private val App = Prefix + "app"
  private val Description = Prefix + "description"
  private val Chosen = Seq("subscribe", "assign", "subscribePattern")

  /** Why only the Python source may do the work, or null. Python reports invalid values. */
  def whyPython(options: CaseInsensitiveStringMap): String = {
    if (options.containsKey(State)) "a checkpoint's state is read"
    else if (options.getOrDefault(Jvm, "true").trim.equalsIgnoreCase("false")) "option jvm is false"
    else null
  }

  /** Reject internal options set by the user, with an IllegalArgumentException. */
  def check(options: CaseInsensitiveStringMap): Unit = options.keySet.forEach { name =>
    if (name.toLowerCase(Locale.ROOT).startsWith(Prefix)) throw new IllegalArgumentException(
      s"option $name is for sparklog's own use: leave it out")
  }

  /** The options for Python, with the plan versions that this JVM supports. */
  def planning(options: CaseInsensitiveStringMap): CaseInsensitiveStringMap =
    plus(options, Plans -> PlanVersion.toString)

  /** The same for a streaming query that this thread starts. */
  def streaming(
      options: CaseInsensitiveStringMap, context: SparkContext): CaseInsensitiveStringMap =
    plus(
      planning(options),
      Query -> context.getLocalProperty("sql.streaming.queryId"),
      Run -> context.getLocalProperty("spark.jobGroup.id"),
      App -> context.applicationId,
      Description -> context.getLocalProperty("spark.job.description")
    )

  /**
   * The start of a micro-batch that this thread plans, with its number; unchanged if there is none.
   */
  def ofBatch(start: Offset, context: SparkContext): Offset = {
    val batch = context.getLocalProperty("streaming.sql.batchId")
    val json = start.json.trim
    if (batch == null || !json.endsWith("}")) start
    else {
      val topics = json.dropRight(1)
      val comma = if (topics.trim == "{") "" else ", "
      PythonStreamingSourceOffset(s"""$topics$comma"#query": {"batch": $batch}}""")
    }
  }

  /** The log and the selected topics, for progress and messages. */
  def described(options: CaseInsensitiveStringMap): String = {
    val part = Chosen.collectFirst {
      case name if options.containsKey(name) => s"${options.get(name)} of "
    }
    part.getOrElse("") + options.getOrDefault("path", "a log")
  }

  /** The log that is written, and its topic if all rows have the same. */
  def written(options: CaseInsensitiveStringMap): String = {
    val topic = Option(options.get("topic"))
    topic.fold("")(name => s"$name of ") + options.getOrDefault("path", "a log")
  }

  /** The run id of the streaming query that this thread works for, or null. */
  def run(context: SparkContext): String =
    if (context.getLocalProperty("sql.streaming.queryId") == null) null
    else context.getLocalProperty("spark.jobGroup.id")

  private def plus(
      options: CaseInsensitiveStringMap, added: (String, String)*): CaseInsensitiveStringMap = {
    val all = new HashMap[String, String](options.asCaseSensitiveMap)
    for ((name, text) <- added if text != null) all.put(name, text)
    new CaseInsensitiveStringMap(all)
  }
}
