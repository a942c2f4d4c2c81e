package sparklog.checkpoint.stored

import java.util.TreeMap

import scala.collection.mutable
import scala.jdk.CollectionConverters._

/**
 * The fold of the ledger: where the content of each file is, and how many files each object holds.
 * Thread-safe: the driver writes the index while executors ask for files.
 */
final class FileIndex {
  private val files = new TreeMap[String, StoredFile]
  private val live = mutable.HashMap.empty[String, Int] // files by object
  private val bytes = mutable.HashMap.empty[String, Long] // of them
  private val dropped = mutable.HashSet.empty[String]

  def get(path: String): Option[StoredFile] = synchronized(Option(files.get(path)))
  def size: Int = synchronized(files.size)

  /** Return the files below a directory, "" for all, in the order of their paths. */
  def below(directory: String): Seq[(String, StoredFile)] = synchronized {
    val found = if (directory.isEmpty) files else files.subMap(s"$directory/", s"${directory}0")
    found.asScala.toVector
  }

  /** Whether a file of the index is in the object. */
  def needs(obj: String): Boolean = synchronized(live.contains(obj))

  def objects: Set[String] = synchronized(live.keySet.toSet)

  /** The number of bytes of an object that files of the index occupy. */
  def bytesIn(obj: String): Long = synchronized(bytes.getOrElse(obj, 0L))

  def apply(changes: Seq[Change]): Unit = synchronized {
    for (Change(path, _, file) <- changes) {
      for (old <- Option(files.remove(path))) count(old.location, -1)
      for (now <- file) {
        files.put(path, now)
        count(now.location, 1)
      }
    }
  }

  /** Return the objects that the index has stopped to need since the last call. */
  def takeDropped(): Set[String] = synchronized {
    val taken = dropped.toSet
    dropped.clear()
    taken
  }

  def clear(): Unit = synchronized {
    files.clear()
    live.clear()
    bytes.clear()
  }

  private def count(location: Location, by: Int): Unit = {
    val left = live.getOrElse(location.obj, 0) + by
    if (left == 0) {
      live.remove(location.obj)
      dropped += location.obj
      bytes.remove(location.obj)
    } else {
      live(location.obj) = left
      bytes(location.obj) = bytes.getOrElse(location.obj, 0L) + by.toLong * location.batchBytes
    }
  }
}
