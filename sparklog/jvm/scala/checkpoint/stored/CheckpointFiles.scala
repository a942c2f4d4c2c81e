package sparklog.checkpoint.stored

import java.io.{FileNotFoundException, IOException}
import java.util.{ArrayList => JList}

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

import org.apache.spark.sparklog.CheckpointRpc

import sparklog.checkpoint.Caller

/**
 * The files of checkpoints in object stores, for state stores, managers and file systems of one
 * run, in the driver and in executors. Paths are absolute, in the checkpoint's real file system.
 */
trait CheckpointFiles {
  def status(path: Path): Option[Status]
  /** Return the content. Throws a FileNotFoundException if there is no such file. */
  def read(path: Path): Array[Byte]
  def write(path: Path, content: Array[Byte], overwrite: Boolean): Unit
  def list(path: Path): Seq[Status]
  def delete(path: Path): Unit
}

object CheckpointFiles {
  def of(conf: Configuration): CheckpointFiles = {
    val run = Option(conf.get(Caller.RunIdKey))
    if (CheckpointRpc.isDriver) new InDriver(run, conf) else new InExecutor(run, conf)
  }

  private val Reads = Set[AnyRef]("status", "list", "read")

  /** Files of at least this size are written by the executor, as an object of their own. */
  val PackBytes: Int = 1 << 20

  /** Write a large file as an object; return the change that refers to it. */
  def packed(
      store: ObjectStore, name: String, path: String, content: Array[Byte]): Change = {
    if (content.length > StoredFile.MaxBytes) throw new IOException(
      s"$path has ${content.length} bytes; a file of a checkpoint in an object store has at most " +
        s"${StoredFile.MaxBytes}. Use more shuffle partitions, or leave the checkpoint to Spark: " +
        s"set ${StoredCheckpoints.StoreKey} to disk")
    packed(store, name, Seq(path -> content)).head
  }

  /** Write files as one object; return the changes that refer to them. */
  def packed(
      store: ObjectStore, name: String, files: Seq[(String, Array[Byte])]): Seq[Change] = {
    val now = System.currentTimeMillis()
    val builder = new ObjectBuilder(name, 0, now)
    val changes = files.map { case (path, content) =>
      val location = builder.add(path, StoredFile.Content, content)
      Change(path, None, Some(StoredFile(location, content.length, now)))
    }
    store.put(name, builder.bytes)
    changes
  }

  /** In the driver, and in the tasks of a local master. */
  private final class InDriver(run: Option[String], conf: Configuration) extends CheckpointFiles {
    /** The run of the query whose threads use this object, as Spark's pool threads have no run. */
    @volatile private var ofQuery: Option[String] = None

    // A task of a local master belongs to a run, and sees what a task in an executor would.
    private def isDriver = run.isEmpty
    private def ofRun = run.orElse(ofQuery)

    /**
     * Return the checkpoint of a path, and begin the run of the query whose thread calls. A task
     * opens no checkpoint: it may be late, or of another class loader than the driver's query.
     */
    private def at(path: Path): Option[(StoredCheckpoint, String)] = {
      val found =
        if (run.isDefined) StoredCheckpoints.open(path)
        else Some(StoredCheckpoints.around(path, conf))
      val caller = Caller.current(run)
      // Before anything is read: the files of an earlier run may be outdated.
      if (found.exists(_._1.beginIfOwn(caller))) ofQuery = caller.run
      found
    }

    private lazy val elsewhere = new InExecutor(run, conf)

    override def status(path: Path): Option[Status] = at(path) match {
      case Some((checkpoint, name)) => checkpoint.status(name, isDriver)
      case None => elsewhere.status(path)
    }

    override def read(path: Path): Array[Byte] = at(path) match {
      case Some((checkpoint, name)) => checkpoint.open(name, isDriver)
      case None => elsewhere.read(path)
    }

    override def write(path: Path, content: Array[Byte], overwrite: Boolean): Unit =
      at(path) match {
        case Some((checkpoint, name)) =>
          val isRiding = content.length < PackBytes || StateFile.isCommitPoint(name)
          val change =
            if (isRiding) Change(name, Some(content), None)
            else packed(checkpoint.objects, checkpoint.newPack(ofRun), name, content)
          checkpoint.write(change, overwrite, ofRun, isDriver)
        case None => elsewhere.write(path, content, overwrite)
      }

    override def list(path: Path): Seq[Status] = at(path) match {
      case Some((checkpoint, name)) => checkpoint.list(name, isDriver)
      case None => elsewhere.list(path)
    }

    override def delete(path: Path): Unit = at(path) match {
      case Some((checkpoint, name)) => checkpoint.delete(name, ofRun)
      case None => elsewhere.delete(path)
    }
  }

  /** In an executor, which asks the driver. */
  private final class InExecutor(run: Option[String], conf: Configuration)
      extends CheckpointFiles {
    private def ask(operation: String, path: Path, more: AnyRef*): AnyRef = {
      val message = new JList[AnyRef]
      message.add(operation)
      message.add(path.toString)
      message.add(run.orNull)
      more.foreach(message.add)
      CheckpointRpc.ask(message)
    }

    override def status(path: Path): Option[Status] =
      Option(ask("status", path)).map(s => status(s.asInstanceOf[Array[AnyRef]]))

    private def status(fields: Array[AnyRef]): Status = Status(
      fields(0).asInstanceOf[String],
      fields(1).asInstanceOf[java.lang.Long],
      fields(2).asInstanceOf[java.lang.Long],
      fields(3).asInstanceOf[java.lang.Boolean]
    )

    override def read(path: Path): Array[Byte] = read(path, None)

    /** Read a file that is not at the location `missing` any more. */
    private def read(path: Path, missing: Option[Location]): Array[Byte] =
      ask("read", path) match {
        case content: Array[Byte] => content
        case Array(root: String, name: String, obj: String, at: java.lang.Long,
              bytes: java.lang.Integer) =>
          val (store, location) = (HadoopStore.at(new Path(root), conf), Location(obj, at, bytes))
          try StoredCheckpoint.fetch(store, name, location)
          catch {
            // The end of a run moves files.
            case _: FileNotFoundException if !missing.contains(location) =>
              read(path, Some(location))
          }
        case _ => throw new FileNotFoundException(path.toString)
      }

    override def write(path: Path, content: Array[Byte], overwrite: Boolean): Unit = {
      val isReplacing: java.lang.Boolean = overwrite
      if (content.length < PackBytes) ask("write", path, isReplacing, content)
      else ask("pack", path) match {
        case Array(root: String, name: String, pack: String) =>
          val file = packed(HadoopStore.at(new Path(root), conf), pack, name, content).file.get
          ask("packed", path, isReplacing, pack, Int.box(file.location.batchBytes),
            Int.box(file.length))
        case other => throw new IllegalStateException(s"the driver answered $other")
      }
      ()
    }

    override def list(path: Path): Seq[Status] =
      ask("list", path).asInstanceOf[Array[AnyRef]].toSeq
        .map(s => status(s.asInstanceOf[Array[AnyRef]]))

    override def delete(path: Path): Unit = {
      ask("delete", path)
      ()
    }
  }

  /**
   * Answer a request of an executor with an array of one element; null if its path is in none of
   * the checkpoints that this class loader knows, or if it is a write of another run.
   */
  def answer(message: JList[AnyRef]): Array[AnyRef] = {
    val path = new Path(message.get(1).asInstanceOf[String])
    val run = Option(message.get(2).asInstanceOf[String])
    val isWrite = !Reads.contains(message.get(0))
    StoredCheckpoints.open(path)
      .filter { case (checkpoint, _) => !isWrite || run.forall(checkpoint.isCurrent) }
      .map { case (checkpoint, name) => Array(answer(message, checkpoint, name)) }.orNull
  }

  private def answer(
      message: JList[AnyRef], checkpoint: StoredCheckpoint, name: String): AnyRef = {
    val run = Option(message.get(2).asInstanceOf[String])
    def fields(s: Status): Array[AnyRef] =
      Array(s.path, Long.box(s.length), Long.box(s.timestamp), Boolean.box(s.isDirectory))
    def write(change: Change): AnyRef = {
      val overwrite = message.get(3).asInstanceOf[java.lang.Boolean]
      checkpoint.write(change, overwrite, run, isDriver = false)
      null
    }
    def pack: AnyRef = Array[AnyRef](checkpoint.root.toString, name, checkpoint.newPack(run))
    message.get(0) match {
      case "status" => checkpoint.status(name, isDriver = false).map(fields).orNull
      case "list" => checkpoint.list(name, isDriver = false).map(fields).toArray[AnyRef]
      case "read" => checkpoint.find(name, isDriver = false) match {
          case Found(null, null) => null
          case Found(null, at) => Array[AnyRef](checkpoint.root.toString, name, at.obj,
              Long.box(at.position), Int.box(at.batchBytes))
          case Found(content, _) => content
        }
      case "pack" => pack
      case "packed" =>
        val location = Location(message.get(4).asInstanceOf[String], 0,
          message.get(5).asInstanceOf[java.lang.Integer])
        val length = message.get(6).asInstanceOf[java.lang.Integer]
        write(Change(name, None, Some(StoredFile(location, length, System.currentTimeMillis()))))
      case "write" => write(Change(name, Some(message.get(4).asInstanceOf[Array[Byte]]), None))
      case "delete" =>
        checkpoint.delete(name, run)
        null
      case other => throw new IllegalArgumentException(s"unknown request $other")
    }
  }
}
