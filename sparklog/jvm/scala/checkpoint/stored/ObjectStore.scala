package sparklog.checkpoint.stored

import org.apache.hadoop.fs.FileStatus

/**
 * An object of a store: its name, its size and when the store received it. `status` is what
 * Hadoop's connector has listed, if anything.
 */
final case class ObjectInfo(
    name: String, bytes: Long, timeMs: Long, status: Option[FileStatus] = None)

/**
 * The objects of one checkpoint, in an object store, in HDFS or on a shared disk. Names are
 * relative to the checkpoint's location and use "/" as separator. All methods throw an IOException
 * if the store does not answer or refuses. Such a write may still have happened, or may happen
 * later.
 */
trait ObjectStore {
  /**
   * Create an object. Return false, and change nothing, if the name exists. Atomic: of several
   * callers one gets true, and no reader sees a part of the object.
   */
  def create(name: String, content: Array[Byte]): Boolean

  /** Write an object under a name that nobody else writes. */
  def put(name: String, content: Array[Byte]): Unit

  /** Return the content of an object, or None. */
  def get(name: String): Option[Array[Byte]]

  /** Return the content of an object that was listed, or None. */
  def get(listed: ObjectInfo): Option[Array[Byte]] = get(listed.name)

  /** Return `bytes` bytes of an object from `position` on, or None if there is no such object. */
  def get(name: String, position: Long, bytes: Int): Option[Array[Byte]]

  /**
   * Return the objects whose names begin with `directory` and "/", in any order, also incomplete
   * ones (`Names.isIncomplete`).
   */
  def list(directory: String): Seq[ObjectInfo]

  /** Delete objects. Those that don't exist are skipped. */
  def delete(names: Seq[String]): Unit
}

object ObjectStore {
  /**
   * Try whether the store creates objects atomically: the second of two creations of one name must
   * fail. Return what is wrong. Leaves no object behind. Cost: four requests.
   */
  def fault(store: ObjectStore, name: String): Option[String] = {
    val content = Array[Byte](1, 2, 3)
    // False if the store's client repeated its request after a lost answer, so the content decides.
    store.create(name, content)
    val second = store.create(name, Array[Byte](4))
    val found = store.get(name)
    store.delete(Seq(name))
    if (!second && found.exists(java.util.Arrays.equals(_, content))) None
    else Some("its store does not create objects atomically (a conditional PUT, for example)")
  }
}
