package sparklog.checkpoint.stored

import java.util.UUID

import scala.util.matching.Regex

/** The names of a ledger's objects. */
object Names {
  private val Entry = "run-(\\d{10})/(\\d{10})".r
  private val Index = "index-(\\d{10})-[0-9a-f-]+".r
  private val Pack = "pack-(\\d{10})-[0-9a-f-]+".r

  private val Incomplete = ".sparklog-"

  // Digits of the JVM's default locale may be others than 0 to 9.
  private def digits(number: Long): String = "%010d".formatLocal(java.util.Locale.ROOT, number)

  def of(directory: String, place: Place): String =
    s"$directory/run-${digits(place.run)}/${digits(place.number)}"

  def newIndex(directory: String, run: Long): String =
    s"$directory/index-${digits(run)}-${UUID.randomUUID()}"

  def newPack(directory: String, run: Long): String =
    s"$directory/pack-${digits(run)}-${UUID.randomUUID()}"

  /** Return a file name for an object that is renamed or linked when it is complete. */
  def newIncomplete(): String = s"$Incomplete${UUID.randomUUID()}"

  def isIncomplete(name: String): Boolean =
    name.substring(name.lastIndexOf('/') + 1).startsWith(Incomplete)

  def entry(directory: String, name: String): Option[Place] =
    name.stripPrefix(s"$directory/") match {
      case Entry(run, number) => Some(Place(run.toLong, number.toLong))
      case _ => None
    }

  /** Return the run of an index object. */
  def index(directory: String, name: String): Option[Long] = run(Index, directory, name)

  /** Return the run of a pack. */
  def pack(directory: String, name: String): Option[Long] = run(Pack, directory, name)

  private def run(pattern: Regex, directory: String, name: String): Option[Long] =
    name.stripPrefix(s"$directory/") match {
      case pattern(run) => Some(run.toLong)
      case _ => None
    }
}
