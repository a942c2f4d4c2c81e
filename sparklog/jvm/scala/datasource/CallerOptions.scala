package sparklog.datasource

import java.util.{HashMap, Locale}

import org.apache.spark.SparkContext
import org.apache.spark.sql.connector.read.streaming.Offset
import org.apache.spark.sql.execution.datasources.v2.python.PythonStreamingSourceOffset
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/**
 * What the user's options say of who moves the bytes, and options that this JVM adds for the Python
 * source: of sparklog/source/jvm_caller.py. Only Python gets to see those; no plan shows them.
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

  /**
   * Why all is the Python source's alone; null if it isn't. A wrong value is for Python to tell.
   */
  def whyPython(options: CaseInsensitiveStringMap): String = {
    if (options.containsKey(State)) "a checkpoint's state is read"
    else if (options.getOrDefault(Jvm, "true").trim.equalsIgnoreCase("false")) "option jvm is false"
    else null
  }

  /** Refuse options of ours from the user: an IllegalArgumentException. */
  def check(options: CaseInsensitiveStringMap): Unit = options.keySet.forEach { name =>
    if (name.toLowerCase(Locale.ROOT).startsWith(Prefix)) throw new IllegalArgumentException(
      s"option $name is for sparklog's own use: leave it out")
  }

  /** What Python gets: that this JVM takes plans. */
  def planning(options: CaseInsensitiveStringMap): CaseInsensitiveStringMap =
    plus(options, Plans -> PlanVersion.toString)

  /** The same for a streaming query that is being started by this thread. */
  def streaming(
      options: CaseInsensitiveStringMap, context: SparkContext): CaseInsensitiveStringMap =
    plus(
      planning(options),
      Query -> context.getLocalProperty("sql.streaming.queryId"),
      Run -> context.getLocalProperty("spark.jobGroup.id"),
      App -> context.applicationId,
      Description -> context.getLocalProperty("spark.job.description")
    )

  /** Where a micro-batch begins, with its number, which this thread plans; as it is without one. */
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

  /** Which log, and which part of it, for progress and messages. */
  def described(options: CaseInsensitiveStringMap): String = {
    val part = Chosen.collectFirst {
      case name if options.containsKey(name) => s"${options.get(name)} of "
    }
    part.getOrElse("") + options.getOrDefault("path", "a log")
  }

  /** Which log is written, and which topic of it, where it is one for all rows. */
  def written(options: CaseInsensitiveStringMap): String = {
    val topic = Option(options.get("topic"))
    topic.fold("")(name => s"$name of ") + options.getOrDefault("path", "a log")
  }

  /** The run of the streaming query that this thread works for; null if it works for none. */
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
