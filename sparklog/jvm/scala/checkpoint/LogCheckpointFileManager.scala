package sparklog.checkpoint

import java.io.{FileNotFoundException, IOException}
import java.nio.file.{Files, Path => LocalPath}

import scala.util.control.NonFatal

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{
  FileStatus, FSDataInputStream, Path, PathFilter, UnsupportedFileSystemException
}

import org.apache.spark.internal.Logging
import org.apache.spark.sql.classic.SparkSession

import sparklog.checkpoint.SparkFiles._
import sparklog.checkpoint.stored.{StoredCheckpoints, StoredFileManager}

/**
 * Stores the files of streaming queries' checkpoints as records of Kafka-format partitions: a few
 * large files instead of many small ones, with every write synced.
 *
 * The manager serves every state store provider, because all of them access their checkpoint
 * through Spark's CheckpointFileManager. A separate state store provider could not serve
 * transformWithState, which accepts only Spark's own providers.
 *
 * A checkpoint is log-backed if its directory contains the log dir `sparklog`, which is created
 * when a query starts. All other paths (`_spark_metadata` of file sinks, checkpoints on other file
 * systems) are delegated to Spark's own manager. A checkpoint that Spark's manager wrote can be
 * continued: a file remains a file until it is written again.
 */
class LogCheckpointFileManager(path: Path, hadoopConf: Configuration)
    extends CheckpointFileManager with Logging {

  private val spark: CheckpointFileManager =
    if (StoredCheckpoints.isOurs(path)) new StoredFileManager(path, hadoopConf)
    else
      try new FileContextBasedCheckpointFileManager(path, hadoopConf)
      catch {
        case _: UnsupportedFileSystemException =>
          new FileSystemBasedCheckpointFileManager(path, hadoopConf)
      }
  private val settings = Settings.of(hadoopConf)
  private val runOfStore = Option(hadoopConf.get(Caller.RunIdKey))
  @volatile private var found: Option[(LocalPath, LogDir)] = None

  override def createAtomic(path: Path, overwrite: Boolean): CancellableFSDataOutputStream =
    file(path) match {
      case Some(file) if file.name.endsWith(".zip") =>
        file.syncedSnapshot(spark.createAtomic(path, overwrite))
      case Some(file) if !Layout.staysFile(file.name) =>
        new RecordOutput(file, spark, path, overwrite, Caller.current(runOfStore))
      case _ => spark.createAtomic(path, overwrite)
    }

  override def open(path: Path): FSDataInputStream = {
    val content = file(path).flatMap(f => Uninterruptible(f.read()))
    content.map(c => new FSDataInputStream(new RecordInput(c))).getOrElse(spark.open(path))
  }

  override def list(path: Path, filter: PathFilter): Array[FileStatus] = {
    val caller = Caller.current(runOfStore)
    if (OfflineRepartition.isListing(path, caller)) checkRepartition(path.getParent, caller)
    list(path, filter, caller)
  }

  private def checkRepartition(checkpoint: Path, caller: Caller): Unit = {
    val plans = new Path(checkpoint, "offsets")
    val found =
      if (exists(plans)) list(plans, (p: Path) => p.getName.forall(_.isDigit), caller)
      else Array.empty[FileStatus]
    for (newest <- found.maxByOption(_.getPath.getName.toLong)) {
      val plan = open(newest.getPath)
      val where = LogCheckpointFileManager.local(checkpoint).getOrElse(checkpoint)
      try OfflineRepartition.check(where.toString, plan)
      finally plan.close()
    }
  }

  private def list(path: Path, filter: PathFilter, caller: Caller): Array[FileStatus] = file(
    path) match {
    case None => spark.list(path, filter)
    case Some(directory) =>
      val records = Uninterruptible {
        directory.beginIfOwn(caller)
        directory.records
      }
      if (records.isEmpty && !Files.exists(directory.local)) {
        throw new FileNotFoundException(s"the checkpoint has no file or directory $path")
      }
      val files =
        // Files that Spark wrote before the checkpoint became a log are listed until they are
        // written again; a record replaces the file of the same name.
        if (Files.exists(directory.local)) spark.list(path, filter) else Array.empty[FileStatus]
      val names = records.map(_._1).toSet
      val ours = records.map { case (name, entry) =>
        new FileStatus(entry.batch.valueLength, false, 1, 0, entry.batch.timestamp,
          new Path(path, name))
      }
      ours.filter(s => filter.accept(s.getPath)).toArray ++
        files.filterNot(s => names(s.getPath.getName) || directory.isOurs(s.getPath.getName))
  }

  override def mkdirs(path: Path): Unit = file(path) match {
    case Some(directory) => Files.createDirectories(directory.local)
    case None => spark.mkdirs(path)
  }

  override def exists(path: Path): Boolean = file(path) match {
    case Some(file) =>
      Files.exists(file.local) || Uninterruptible(file.partition.get(file.key)).isDefined
    case None => spark.exists(path)
  }

  override def delete(path: Path): Unit = file(path) match {
    case Some(file) =>
      Uninterruptible(file.deleteRecords())
      if (Files.exists(file.local)) spark.delete(path)
    case None => spark.delete(path)
  }

  override def isLocal: Boolean = spark.isLocal

  override def createCheckpointDirectory(): Path = storedDirectory().getOrElse {
    val qualified = spark.createCheckpointDirectory()
    LogCheckpointFileManager.whyFiles(qualified) match {
      case null =>
        val local = LogCheckpointFileManager.local(qualified).get
        found = Some(local -> Uninterruptible(LogDir.create(local, settings)))
      case why =>
        if (!StoredCheckpoints.isWanted(hadoopConf)) logWarning(
          s"Spark's own manager writes the checkpoint $qualified as files, because $why, and " +
            s"${StoredCheckpoints.StoreKey} is disk")
    }
    qualified
  }

  /** Return the directory of a checkpoint in an object store, if it is kept in runs. */
  private def storedDirectory(): Option[Path] =
    if (StoredCheckpoints.isOurs(path)) Some(path)
    else if (!StoredCheckpoints.isWanted(hadoopConf)) None
    else {
      val qualified = path.getFileSystem(hadoopConf).makeQualified(path)
      if (LogCheckpointFileManager.whyFiles(qualified) == null) None // it becomes a log dir
      else stored(qualified)
    }

  private def stored(qualified: Path): Option[Path] =
    StoredCheckpoints.create(qualified, hadoopConf) match {
      case Left(why) =>
        logWarning(
          s"Spark's own manager continues the checkpoint $qualified, because $why. To keep it in " +
            "runs, stop the query, and run: sparklog checkpoint import CHECKPOINT")
        None
      case Right(_) =>
        // Executors and later batches get this conf from the session.
        StoredCheckpoints.useFileSystem(
          qualified, SparkSession.active.sparkContext.hadoopConfiguration)
        Some(StoredCheckpoints.ours(qualified))
    }

  /**
   * Return the file or directory at `path` if it belongs to a log-backed checkpoint, else None. A
   * manager remains bound to the checkpoint that it used first: state stores of an old run do their
   * last maintenance after a new run has begun, and must not write to a checkpoint that was reset
   * meanwhile.
   */
  private def file(path: Path): Option[CheckpointFile] =
    LogCheckpointFileManager.local(path).flatMap { local =>
      if (!found.exists { case (root, d) => !d.isGoneFrom(root) && local.startsWith(root) }) {
        found = Uninterruptible(LogDir.around(local, settings))
      }
      for ((root, logDir) <- found) if (logDir.isReplacedAt(root)) throw new IOException(
        s"the checkpoint $root was replaced (reset or restored) after this run began. Nothing " +
          "was written. Start the query again")
      found.map { case (root, logDir) => new CheckpointFile(logDir, root, local) }
    }
}

object LogCheckpointFileManager {
  /**
   * File systems on which locks or fsync are unreliable; `check_file_system` rejects the same for a
   * log dir (logdir/broker_lockout.py).
   */
  private val Networked = "(?i)(nfs|cifs|smb|fuse|9p|ceph|glusterfs|lustre|afs).*".r

  /**
   * Return how a checkpoint at a location is kept, or would be: `log-backed`, `in runs`, or `files`
   * or `refused` with the reason. A location without a scheme is on Hadoop's default file system.
   * `sparklog.doctor` calls this.
   */
  def describe(location: String): String =
    try {
      val path = new Path(location)
      val hadoopConf = SparkSession.active.sessionState.newHadoopConf()
      val qualified = path.getFileSystem(hadoopConf).makeQualified(path)
      val why = whyFiles(qualified)
      if (why == null) "log-backed"
      else if (StoredCheckpoints.isWanted(hadoopConf)) {
        StoredCheckpoints.describe(qualified, hadoopConf)
      } else s"files, because $why, and ${StoredCheckpoints.StoreKey} is disk"
    } catch { case NonFatal(e) => s"refused, because its file system can't be used ($e)" }

  /** Return why a checkpoint at a qualified path can't be log-backed, or null. */
  private def whyFiles(path: Path): String = local(path) match {
    case None => s"it is on the file system ${path.toUri.getScheme}"
    case Some(directory) =>
      val existing = Iterator.iterate(directory)(_.getParent).find(Files.exists(_)).get
      val kind = Files.getFileStore(existing).`type`
      // Locks between processes may not work there.
      if (Networked.matches(kind)) s"its file system is of type $kind" else null
  }

  /**
   * Return the path on the local file system, without resolving symbolic links; None for other file
   * systems.
   */
  private def local(path: Path): Option[LocalPath] = {
    val scheme = path.toUri.getScheme
    if (scheme == null || scheme == "file") Some(LocalPath.of(path.toUri.getPath).toAbsolutePath)
    else None
  }
}
