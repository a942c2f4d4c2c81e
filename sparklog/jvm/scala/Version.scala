package sparklog

/** The versions of this jar, which Python checks before it uses the jar. */
object Version {

  /** The version of the plans, equal to `PLAN_VERSION` of sparklog/jvm/plans.py. */
  val plans: Int = 1

  /** The sparklog version that built the jar, from its manifest, or null. */
  def sparklog: String = getClass.getPackage.getImplementationVersion

  /** The Spark version that the jar was compiled against, from its manifest, or null. */
  def spark: String = getClass.getPackage.getSpecificationVersion

  // As `jar_version` of sparklog/spark_support.py.
  private val Served = Map("4.3" -> "4.2")

  /** Throw an IllegalStateException if this jar does not work with the running Spark. */
  def check(): Unit = mismatch(spark, org.apache.spark.SPARK_VERSION) match {
    case null =>
    case why => throw new IllegalStateException(why)
  }

  /** Return why a jar for the Spark version `made` does not work with `running`, or null. */
  def mismatch(made: String, running: String): String = {
    def jar(version: String): String = {
      val minor = version.split('.').take(2).mkString(".")
      Served.getOrElse(minor, minor)
    }
    if (made == null || jar(made) == jar(running)) null
    else s"sparklog's jar was made for Spark $made, and this is Spark $running: remove it from " +
      "spark.jars, and use the jar that `sparklog doctor --spark-conf --jar FILE` writes where " +
      "that Spark is installed"
  }
}
