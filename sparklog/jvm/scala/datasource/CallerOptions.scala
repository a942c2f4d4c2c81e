package sparklog.datasource

import java.util.{HashMap, Locale}

import org.apache.spark.SparkContext
import org.apache.spark.sql.connector.read.streaming.Offset
import org.apache.spark.sql.execution.datasources.v2.python.PythonStreamingSourceOffset
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/**
 * The user's options that choose the data path, and the options that this JVM adds for the Python
 * source (see sparklog/source/jvm_caller.py). Only Python receives the added options; query plans
 * do not show them.
 */
private[sparklog] object CallerOptions {
  private val Jvm = "jvm"
  private val State = "stateOperator"
  private val Async = "asyncProgressTrackingEnabled"
  private val Prefix = "sparklog.jvm."
  private val Plans = Prefix + "plan"
  private val Query = Prefix + "query"
  private val Run = Prefix + "run"
  private val App = Prefix + "app"
  private val Description = Prefix + "description"
  private val Chosen = Seq("subscribe", "assign", "subscribePattern")

  /**
   * Return the reason why only the Python source can do the work, or null. Python reports invalid
   * values of the options.
   */
  def whyPython(options: CaseInsensitiveStringMap): String = {
    if (options.containsKey(State)) "a checkpoint's state is read"
    else if (options.getOrDefault(Jvm, "true").trim.equalsIgnoreCase("false")) "option jvm is false"
    else null
  }

  /**
   * Throw an IllegalArgumentException if the user has set an internal option, or an option of Spark
   * that the sink does not support.
   */
  def check(options: CaseInsensitiveStringMap): Unit = {
    options.keySet.forEach { name =>
      if (name.toLowerCase(Locale.ROOT).startsWith(Prefix)) throw new IllegalArgumentException(
        s"option $name is for sparklog's own use: leave it out")
    }
    if (options.getOrDefault(Async, "false").trim.equalsIgnoreCase("true")) {
      throw new IllegalArgumentException(
        s"option $Async is not supported by format(\"sparklog\"): the sink identifies a " +
          "micro-batch by its planned offsets, which Spark must write before the batch runs. " +
          "Remove the option")
    }
  }

  /** Return the value of option jvm, if it is set. */
  def jvm(options: CaseInsensitiveStringMap): Option[String] = Option(options.get(Jvm))

  /** Return the options with a value of option jvm, unless they have one. */
  def withDefault(
      options: CaseInsensitiveStringMap, jvm: Option[String]): CaseInsensitiveStringMap =
    if (options.containsKey(Jvm)) options else plus(options, Jvm -> jvm.orNull)

  /** Return the options for Python, with the version of the plans that this JVM supports. */
  def planning(options: CaseInsensitiveStringMap): CaseInsensitiveStringMap =
    plus(options, Plans -> PlanVersion.toString)

  /**
   * Return the options for Python for a streaming query that this thread starts: `planning` and the
   * ids of the query.
   */
  def streaming(
      options: CaseInsensitiveStringMap, context: SparkContext): CaseInsensitiveStringMap =
    plus(
      planning(options),
      Query -> context.getLocalProperty("sql.streaming.queryId"),
      Run -> context.getLocalProperty("spark.jobGroup.id"),
      App -> context.applicationId,
      Description -> context.getLocalProperty("spark.job.description")
    )

  /** Return `start` with the number of the micro-batch that this thread plans, if there is one. */
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

  /** Return the log and the selected topics, for progress and messages. */
  def described(options: CaseInsensitiveStringMap): String = {
    val part = Chosen.collectFirst {
      case name if options.containsKey(name) => s"${options.get(name)} of "
    }
    part.getOrElse("") + options.getOrDefault("path", "a log")
  }

  /** Return the log to which rows are written, with the topic if all rows have the same. */
  def written(options: CaseInsensitiveStringMap): String = {
    val topic = Option(options.get("topic"))
    topic.fold("")(name => s"$name of ") + options.getOrDefault("path", "a log")
  }

  /** Return the run id of the streaming query that this thread works for, or null. */
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
