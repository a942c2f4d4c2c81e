package sparklog.datasource

import com.fasterxml.jackson.core.{JsonFactory, JsonToken}

/**
 * The version of the plans that Python makes and this jar executes. Every plan begins with its
 * version.
 */
private[datasource] object PlanVersion {
  val own: Int = sparklog.Version.plans

  private val json = new JsonFactory

  /** Return the version of a plan (JSON); -1 if the plan has none. */
  def of(plan: Array[Byte]): Int = {
    val parser = json.createParser(plan)
    try {
      if (parser.nextToken() == JsonToken.START_OBJECT && parser.nextFieldName() == "version") {
        parser.nextIntValue(-1)
      } else -1
    } finally parser.close()
  }

  def mismatch(python: Int): String =
    s"the Python package makes plans of version $python, and the jar that is loaded supports " +
      s"version $own: use the jar that `sparklog doctor --spark-conf` names, and remove the " +
      "other jar from spark.jars and the class path"

  override def toString: String = own.toString
}
