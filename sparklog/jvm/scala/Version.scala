package sparklog

/** Which plans this jar carries out, and what it was made from: Python asks before it uses it. */
object Version {

  /** Of the plans; one number with `PLAN_VERSION` of sparklog/jvm/plans.py. */
  val plans: Int = 1

  /** The sparklog that the jar was made by, from its manifest; null if that doesn't say. */
  def sparklog: String = getClass.getPackage.getImplementationVersion

  /** The Spark that the jar was compiled against, from its manifest; null if that doesn't say. */
  def spark: String = getClass.getPackage.getSpecificationVersion
}
