package sparklog.checkpoint.stored

import scala.collection.mutable

import sparklog.checkpoint.MetadataMarker

/**
 * Changes that no entry contains yet. They become durable with the next commit point that may
 * contain them. Not thread-safe.
 */
final class PendingFiles {
  private val changes = mutable.LinkedHashMap.empty[String, Change]
  private var contentBytes = 0L

  def get(path: String): Option[Change] = changes.get(path)
  def all: Iterable[Change] = changes.values

  def put(change: Change): Unit = {
    remove(change.path) // the order is that of the last change
    changes.put(change.path, change)
    contentBytes += bytesOf(change)
  }

  def contains(path: String): Boolean = changes.contains(path)

  def remove(path: String): Unit = changes.remove(path).foreach(contentBytes -= bytesOf(_))

  private def bytesOf(change: Change): Long = change.content.fold(0L)(_.length)

  /** The bytes of the contents that the next entries will hold. */
  def bytes: Long = contentBytes

  /** Drop the changes of an earlier run. `metadata` is written before the first run begins. */
  def clear(keepsMetadata: Boolean): Unit =
    replace(all.filter(c => keepsMetadata && c.path == MetadataMarker.File).toSeq)

  /** Return the versions of the state of which files of state format 2 are pending. */
  def versionsWithIds: Seq[Long] =
    changes.keysIterator.flatMap(StateFile.of).filter(_.id.isDefined).map(_.version).distinct.toSeq

  /**
   * Take the changes that an entry may contain after which the state has the version `committed`.
   * Files of later versions wait: they belong to a batch that may be repeated. `ids` has the unique
   * ids of the attempts that made a version, by operator, in state format 2; files of other
   * attempts are dropped, and files of versions that are not in `ids` wait.
   */
  def take(
      committed: Long, ids: Map[Long, Option[Map[String, Set[String]]]]): Seq[Change] = {
    val (ready, waiting) = changes.values.toSeq.partition { change =>
      change.isDeletion || StateFile.of(change.path).forall { file =>
        file.version <= committed && (file.id.isEmpty || ids.contains(file.version))
      }
    }
    replace(waiting)
    ready.filter { change =>
      StateFile.of(change.path) match {
        case Some(StateFile(operator, version, Some(id), _)) =>
          ids.get(version).flatten.forall(_.get(operator).forall(_.contains(id)))
        case _ => true
      }
    }
  }

  private def replace(left: Seq[Change]): Unit = {
    changes.clear()
    contentBytes = 0
    left.foreach(put)
  }
}
