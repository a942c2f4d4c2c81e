package sparklog.checkpoint.stored

import java.io.{FileNotFoundException, IOException}
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.FileSystemException
import java.util.UUID
import java.util.concurrent.ConcurrentHashMap

import scala.jdk.CollectionConverters._

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileSystem, Path}
import org.apache.hadoop.util.ShutdownHookManager

import org.apache.spark.sparklog.CheckpointRpc

import sparklog.checkpoint.{Layout, MetadataMarker}

/** The checkpoints in object stores that this JVM uses. */
object StoredCheckpoints {
  /**
   * The conf that decides how a checkpoint outside of a local disk is kept: `runs` (in the ledger
   * of this package) or `disk` (only local disks have log-backed checkpoints).
   */
  val StoreKey = "spark.sparklog.checkpoint.store"

  private val SchemePrefix = "sparklog-"
  private val open = new ConcurrentHashMap[String, StoredCheckpoint]

  def isWanted(conf: Configuration): Boolean = conf.get(StoreKey, "runs") match {
    case "runs" => true
    case "disk" => false
    case other => throw new IllegalArgumentException(
        s"$StoreKey must be runs (keep checkpoints outside of local disks in runs) or disk " +
          s"(leave them to Spark); got $other")
  }

  /** Whether a path has the scheme of checkpoints in object stores. */
  def isOurs(path: Path): Boolean =
    path.toUri.getScheme != null && path.toUri.getScheme.startsWith(SchemePrefix)

  /**
   * Return the path with the scheme by which Spark uses the checkpoint. With a scheme of its own
   * even the files that Spark copies without its checkpoint manager reach this code.
   */
  def ours(path: Path): Path = withScheme(path, SchemePrefix + path.toUri.getScheme)

  /** Return the path in the real file system. */
  def real(path: Path): Path =
    if (isOurs(path)) withScheme(path, path.toUri.getScheme.stripPrefix(SchemePrefix)) else path

  private def withScheme(path: Path, scheme: String): Path = {
    val uri = path.toUri
    new Path(new java.net.URI(scheme, uri.getAuthority, uri.getPath, null, null))
  }

  /** Set the file system for the scheme of a checkpoint at a path of a real file system. */
  def useFileSystem(path: Path, conf: Configuration): Unit = {
    val key = s"fs.${ours(path).toUri.getScheme}.impl"
    conf.set(key, classOf[StoredFileSystem].getName)
    // A cached file system would keep the run id of the first query that used it.
    conf.setBoolean(s"$key.disable.cache", true)
  }

  /** Return the open checkpoint that contains a path, and the path in it. */
  def open(path: Path): Option[(StoredCheckpoint, String)] =
    parents(path).flatMap { root =>
      Option(open.get(root.toString)).map(_ -> relative(root, path))
    }.nextOption()

  /**
   * Return the checkpoint that contains a path of a real file system, and the path in it. Opens the
   * checkpoint if necessary. Throws a FileNotFoundException if there is none.
   */
  def around(path: Path, conf: Configuration): (StoredCheckpoint, String) =
    open(path).getOrElse {
      val found = parents(path).flatMap { root =>
        val store = HadoopStore.at(root, conf)
        store.get(CheckpointHome.Name).map(home => at(root, store, home, conf))
      }.nextOption()
      val checkpoint = found.getOrElse(
        throw new FileNotFoundException(s"$path is in no checkpoint of sparklog"))
      checkpoint -> relative(checkpoint.root, path)
    }

  /** Use this object for the checkpoint's path: its query has begun a run with it. */
  def remember(checkpoint: StoredCheckpoint): Unit = {
    open.put(checkpoint.root.toString, checkpoint)
    atExit
  }

  /**
   * Writes the commits that ride when the JVM exits: after Spark has stopped its queries, and
   * before Hadoop closes its file systems.
   */
  private lazy val atExit: Unit = ShutdownHookManager.get().addShutdownHook(
    () => open.values.forEach(_.flush()), FileSystem.SHUTDOWN_HOOK_PRIORITY + 10)

  /** Release the memory of a checkpoint whose query has ended. */
  def forget(checkpoint: StoredCheckpoint): Unit = {
    open.remove(checkpoint.root.toString, checkpoint)
    ()
  }

  private def parents(path: Path): Iterator[Path] =
    Iterator.iterate(path)(_.getParent).takeWhile(_ != null)

  private def relative(root: Path, path: Path): String =
    path.toUri.getPath.stripPrefix(root.toUri.getPath).stripPrefix("/")

  /** Return the checkpoint at a location; `home` is the content of its CheckpointHome. */
  private def at(
      root: Path, store: ObjectStore, home: Array[Byte], conf: Configuration): StoredCheckpoint =
    synchronized {
      val id = CheckpointHome.idOf(root.toString, home)
      // The same place may have several URLs, with and without a port, for example.
      val known = open.values.asScala.find { each =>
        each.root == root || (each.id == id && each.root.toUri.getPath == root.toUri.getPath)
      }.orNull
      if (known != null && known.id == id && !known.isBroken) known
      else {
        val checkpoint = new StoredCheckpoint(root, store, id, conf)
        open.put(root.toString, checkpoint)
        checkpoint
      }
    }

  /**
   * Open the checkpoint at a location for a query, and create it if the location is empty. Return
   * why the location is left to Spark instead, if it is. Called in the driver.
   */
  def create(root: Path, conf: Configuration): Either[String, StoredCheckpoint] = {
    val store = HadoopStore.at(root, conf)
    val known = store.get(CheckpointHome.Name)
    if (known.isEmpty && isOfSpark(store)) Left(OfSpark)
    else {
      for (why <- HadoopStore.fault(root)) throw refusal(root, why)
      val home = known.getOrElse(createHome(root, store))
      CheckpointRpc.serve(message => CheckpointFiles.answer(message))
      Right(at(root, store, home, conf))
    }
  }

  /** Return how a checkpoint at a qualified path is kept, or would be. */
  def describe(root: Path, conf: Configuration): String = {
    val store = HadoopStore.at(root, conf)
    if (store.get(CheckpointHome.Name).isEmpty && isOfSpark(store)) s"files, because $OfSpark"
    else HadoopStore.fault(root) match {
      case Some(why) => s"refused, because $why"
      case None => "in runs"
    }
  }

  private val OfSpark = "Spark itself began the checkpoint"

  private def refusal(root: Path, why: String): IOException = new IOException(
    s"a checkpoint at $root can't be kept in runs: $why. Use another checkpointLocation, or " +
      s"leave the checkpoint to Spark: set $StoreKey to disk")

  private def isOfSpark(store: ObjectStore): Boolean =
    store.get(MetadataMarker.File) match {
      case Some(text) => !MetadataMarker.isText(new String(text, UTF_8))
      case None => store.list("offsets").nonEmpty
    }

  /** Create the marker and the home of a new checkpoint; return the content of the home. */
  private def createHome(root: Path, store: ObjectStore): Array[Byte] = {
    CheckpointHome.checkNotLost(root.toString, store)
    val name = s"${Layout.LogDirName}/trial-${UUID.randomUUID()}"
    val fault =
      try ObjectStore.fault(store, name)
      catch {
        case e @ (_: FileSystemException | _: UnsupportedOperationException) =>
          Some(s"its file system can't create objects by hard links ($e)")
      }
    for (why <- fault) throw refusal(root, why)
    // S3 may answer creations of one object at the same time with a conflict.
    def create(name: String, content: Array[Byte]) =
      Retry(LedgerSettings())(store.create(name, content))
    create(MetadataMarker.File, MetadataMarker.TextOfRuns.getBytes(UTF_8))
    val home = CheckpointHome.encode(UUID.randomUUID().toString)
    // Of two drivers that begin at once, one creates the home.
    if (create(CheckpointHome.Name, home)) home
    else store.get(CheckpointHome.Name).getOrElse(
      throw new FileNotFoundException(s"$root/${CheckpointHome.Name} exists, but can't be read"))
  }
}
