package sparklog

/** The versions of this jar, which Python checks before it uses the jar. */
object Version {

  /** The version of the plans, equal to `PLAN_VERSION` of sparklog/jvm/plans.py. */
  val plans: Int = 1

  /** The sparklog version that built the jar, from its manifest, or null. */
  def sparklog: String = getClass.getPackage.getImplementationVersion

  /** The Spark version that the jar was compiled against, from its manifest, or null. */
  def spark: String = getClass.getPackage.getSpecificationVersion
}
