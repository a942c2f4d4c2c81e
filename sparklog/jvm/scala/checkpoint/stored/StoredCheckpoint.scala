package sparklog.checkpoint.stored

import java.io.{FileNotFoundException, IOException}
import java.nio.charset.StandardCharsets.UTF_8

import scala.collection.mutable
import scala.util.control.NonFatal

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileAlreadyExistsException, Path}

import org.apache.spark.internal.Logging
import org.apache.spark.sparklog.CheckpointRpc
import org.apache.spark.sql.execution.streaming.StartedQuery

import sparklog.checkpoint.{
  Caller, Daemons, Layout, MetadataMarker, QueryNote, ResetNote, Uninterruptible
}

/** What is at a path: a file with its size and timestamp (ms), or a directory. */
final case class Status(path: String, length: Long, timestamp: Long, isDirectory: Boolean)

/** The content of a file: its bytes, or where they are. Both are null for a missing file. */
final case class Found(content: Array[Byte], location: Location)

/**
 * A checkpoint in an object store, in the driver of its query. Paths are relative to the
 * checkpoint. Thread-safe.
 *
 * A file becomes durable with the next commit point: the file of a batch in `offsets` or `commits`.
 * Until then only the driver sees it. Executors see what an entry contains, so that a repeated task
 * never meets a file of its first attempt. If commits ride, a commit and the files of its batch
 * become durable with the next file in `offsets`, or when the query ends.
 */
final class StoredCheckpoint(
    val root: Path, store: ObjectStore, val id: String, conf: Configuration,
    pauseMs: Long = LedgerSettings().pauseMs) extends Logging {
  private val directory = s"${Layout.LogDirName}/$id"
  private val cache =
    new ContentCache(conf.getLong(StoredCheckpoint.CacheBytesKey, 67108864))
  private val settings = {
    val defaults = LedgerSettings()
    defaults.copy(
      giveUpMs = conf.getLong(StoredCheckpoint.TimeoutKey, 120000),
      pauseMs = pauseMs,
      rotateEntries = conf.getLong(StoredCheckpoint.RunEntriesKey, defaults.rotateEntries)
    )
  }
  private val entryBytes =
    conf.getLong(StoredCheckpoint.EntryBytesKey, StoredCheckpoint.EntryBytes)
  private val areCommitsRiding = StoredCheckpoint.areCommitsRiding(conf)
  private val committing = new Object // held while an entry is written
  private val packing = new Object // held while pending contents are written as an object
  private val pending = new PendingFiles // guarded by this, like the following
  /** The changes of the next entry that wait for nothing else: of a commit that rides. */
  private var riding = Seq.empty[Change]
  private var inFlight = Map.empty[String, Change] // `riding`, or the entry that is being written
  private var committed = 0L // the version of the state after the last commit
  private var closing = 0L // the same, with a commit that is being written
  private var run: Option[String] = None
  private var mayRide = false // whether the query of this run can let its commits ride
  @volatile private var ledger = newLedger()

  ledger.refresh()
  committed = versionInLedger
  closing = committed

  private def versionInLedger: Long =
    ledger.index.below("commits").flatMap(f => StateFile.commit(f._1)).maxOption.fold(0L)(_ + 1)

  private def newLedger(): RunLedger = new RunLedger(
    store, directory, settings, cache.put, location => Option(cache.get(location)))

  def objects: ObjectStore = store

  // -- reading -----------------------------------------------------------------------------------

  /** Return what is at a path, or None. */
  def status(path: String, isDriver: Boolean): Option[Status] = change(path, isDriver) match {
    case Some(found) if found.isDeletion => directoryAt(path, isDriver)
    case Some(found) => Some(statusOf(found))
    case None => ledger.index.get(path) match {
        case Some(file) => Some(Status(path, file.length, file.timestamp, isDirectory = false))
        case None => directoryAt(path, isDriver)
      }
  }

  private def directoryAt(path: String, isDriver: Boolean): Option[Status] =
    if (path.isEmpty || list(path, isDriver).nonEmpty) {
      Some(Status(path, 0, 0, isDirectory = true))
    } else None

  private def statusOf(change: Change): Status = {
    val length = change.content.fold(change.file.fold(0)(_.length))(_.length)
    Status(change.path, length, change.file.fold(System.currentTimeMillis())(_.timestamp),
      isDirectory = false)
  }

  /** Return the files and directories directly in a directory; none if it does not exist. */
  def list(path: String, isDriver: Boolean): Seq[Status] = {
    val changes = synchronized {
      (inFlight.values ++ pending.all).filter(c => isDriver || c.isDeletion).toSeq
    }
    val files = mutable.LinkedHashMap.empty[String, Status]
    for ((name, file) <- ledger.index.below(path)) {
      files(name) = Status(name, file.length, file.timestamp, isDirectory = false)
    }
    val prefix = if (path.isEmpty) "" else s"$path/"
    for (change <- changes if change.path.startsWith(prefix)) {
      if (change.isDeletion) files.remove(change.path)
      else files(change.path) = statusOf(change)
    }
    files.values.map { file =>
      val name = file.path.substring(prefix.length)
      if (!name.contains('/')) file
      else Status(prefix + name.takeWhile(_ != '/'), 0, file.timestamp, isDirectory = true)
    }.toSeq.distinctBy(_.path)
  }

  /** Return the change of a path that is not durable yet, as far as the caller may see it. */
  private def change(path: String, isDriver: Boolean): Option[Change] = synchronized {
    pending.get(path).orElse(inFlight.get(path)).filter(c => isDriver || c.isDeletion)
  }

  /** Return the content of a file in memory, or its location. Makes no request. */
  def find(path: String, isDriver: Boolean): Found = change(path, isDriver) match {
    case Some(Change(_, content, file)) =>
      Found(content.orNull, file.filter(_ => content.isEmpty).map(_.location).orNull)
    case None => ledger.index.get(path) match {
        case Some(file) => cache.get(file.location) match {
            case null => Found(null, file.location)
            case content => Found(content, null)
          }
        case None => Found(null, null)
      }
  }

  def open(path: String, isDriver: Boolean): Array[Byte] = find(path, isDriver) match {
    case Found(null, null) => throw new FileNotFoundException(s"$root has no file $path")
    case Found(null, location) =>
      try StoredCheckpoint.fetch(store, path, location)
      catch {
        // The end of a run moves files.
        case _: FileNotFoundException if find(path, isDriver).location != location =>
          open(path, isDriver)
      }
    case Found(content, _) => content
  }

  // -- writing -----------------------------------------------------------------------------------

  /** Return the name of a new object for a large file, relative to the checkpoint. */
  def newPack(ofRun: Option[String]): String = {
    check(ofRun)
    Names.newPack(directory, ledger.firstRun.max(0))
  }

  /**
   * Write a file, durably if it is a commit point. Throws an IOException if the caller's run has
   * ended, and a FileAlreadyExistsException if the file exists and `overwrite` is false.
   */
  def write(change: Change, overwrite: Boolean, ofRun: Option[String], isDriver: Boolean): Unit = {
    def checkAll(): Unit = {
      check(ofRun)
      if (!overwrite && status(change.path, isDriver).isDefined) {
        throw new FileAlreadyExistsException(s"$root has a file ${change.path} already")
      }
    }
    // The checks and the write exclude the begin of another run.
    if (StateFile.isCommitPoint(change.path)) committing.synchronized {
      checkAll()
      commit(change)
    }
    else synchronized {
      checkAll()
      refuseLate(change.path)
      if (!isLateSnapshot(change.path)) pending.put(change)
    }
    if (isFull) packPending()
  }

  /** Whether the pending contents are too large for an entry. */
  private def isFull: Boolean = synchronized(pending.bytes >= entryBytes)

  /**
   * Write the pending contents as one object. Other writers wait meanwhile, so that the contents
   * in memory don't grow without limit.
   */
  private def packPending(): Unit = packing.synchronized {
    if (isFull) {
      val waiting = synchronized(pending.all.filter(_.content.isDefined).toSeq)
      val name = newPack(ofRun = None)
      val files = waiting.map(change => change.path -> change.content.get)
      val changes = CheckpointFiles.packed(store, name, files)
      synchronized {
        // Not what was written again or became part of an entry since.
        for ((old, now) <- waiting.zip(changes) if pending.get(old.path).exists(_ eq old)) {
          pending.put(now)
        }
      }
    }
  }

  /** Refuse a change of a committed version: the task that sends it was replaced by another one. */
  private def refuseLate(path: String): Unit = for {
    file <- StateFile.of(path)
    if file.isChange && file.id.isEmpty && file.version <= closing
  } throw new IOException(
    s"$root: the file $path of a task that ended late is refused, because its batch is " +
      "committed. No data are lost")

  /**
   * Whether a file is a snapshot of a committed version that has one already. Without changelogs
   * RocksDB's snapshot is the change of a batch, so that of another attempt must not replace it.
   */
  private def isLateSnapshot(path: String): Boolean =
    StateFile.of(path).exists { file =>
      !file.isChange && file.id.isEmpty && file.version <= closing && !pending.contains(path) &&
      (inFlight.contains(path) || ledger.index.get(path).isDefined)
    }

  /** Delete a file, or all files below a directory, with the next commit point. */
  def delete(path: String, ofRun: Option[String]): Unit =
    if (path == ResetNote.Name) committing.synchronized {
      // At once: after the sink has written its next batch, it must not be reset again.
      check(ofRun)
      if (ledger.index.get(path).isDefined) append(Seq(Change(path, None, None)))
    }
    else deleteLater(path, ofRun)

  private def deleteLater(path: String, ofRun: Option[String]): Unit = {
    val below = ledger.index.below(path).map(_._1)
    synchronized {
      check(ofRun)
      // Spark deletes single files, of which there may be thousands per micro-batch.
      val isFile = ledger.index.get(path).isDefined || pending.contains(path)
      val changed =
        if (isFile) Nil
        else (pending.all ++ inFlight.values).map(_.path).filter(_.startsWith(s"$path/"))
      for (each <- (below ++ changed :+ path).distinct) {
        val isStored = ledger.index.get(each).isDefined || inFlight.contains(each)
        if (isStored) pending.put(Change(each, None, None)) else pending.remove(each)
      }
    }
  }

  private def commit(change: Change): Unit = {
    val batch = StateFile.commit(change.path)
    val ids = idsOfPending() ++ batch.flatMap(b =>
      change.content.map(content => (b + 1) -> StateFile.uniqueIds(content)))
    hold {
      batch.foreach(b => closing = closing.max(b + 1))
      pending.take(batch.fold(committed)(_ + 1), ids).filterNot(_.path == change.path) :+ change
    }
    if (batch.isEmpty || !canWait) {
      writeHeld()
      synchronized { committed = closing }
      if (ledger.isWorthRotating) rotate()
    } else synchronized { committed = closing }
  }

  /** Whether the changes that ride may wait: an entry has room for the next pending files. */
  private def canWait: Boolean = synchronized {
    areCommitsRiding && mayRide &&
    riding.iterator.flatMap(_.content).map(_.length.toLong).sum < entryBytes / 2
  }

  /** Make the changes that `take` returns part of the next entry. The driver sees them. */
  private def hold(take: => Seq[Change]): Unit = synchronized {
    val changes = mutable.LinkedHashMap.empty[String, Change]
    for (change <- riding ++ take) {
      changes.remove(change.path) // a later change of a file comes after all earlier ones
      changes(change.path) = change
    }
    riding = changes.values.toSeq
    inFlight = changes.toMap
  }

  /** Write an entry with the changes that are held. */
  private def writeHeld(): Unit = {
    val changes = synchronized(riding)
    if (changes.nonEmpty) {
      // Spark interrupts the thread of a query that it stops, when a commit may be riding.
      if (areCommitsRiding) Uninterruptible(ledger.append(changes)) else ledger.append(changes)
    }
    synchronized {
      riding = Nil
      inFlight = Map.empty
    }
  }

  private def append(take: => Seq[Change]): Unit = {
    hold(take)
    writeHeld()
  }

  /** Write the commit that rides, if any; the caller holds `committing`. */
  private def writeRiding(): Unit =
    if (!ledger.isBroken && synchronized(riding).nonEmpty) {
      try writeHeld()
      catch {
        case NonFatal(e) => logWarning(
            s"$root: the commit of the last micro-batch was not stored. The next run of the " +
              "query repeats this micro-batch",
            e)
      }
    }

  /** Write the commit that rides, if any: the JVM ends. */
  def flush(): Unit = committing.synchronized(writeRiding())

  private def rotate(): Unit =
    try {
      val moved = ledger.oldFiles.map { case (path, file) =>
        Change(path, Some(contentOf(path, file)), Some(file))
      }
      ledger.rotate(moved)
      deleteUnneeded()
    } catch {
      // The entry is durable already, and the run can be ended later.
      case e: IOException if !ledger.isBroken =>
        logWarning(s"$root: the run was not ended, because its files could not be read", e)
    }

  private def deleteUnneeded(): Unit =
    try ledger.deleteUnneeded()
    catch {
      case NonFatal(e) =>
        logWarning(s"$root: some objects that are not needed any more were not deleted", e)
    }

  private def contentOf(path: String, file: StoredFile): Array[Byte] =
    cache.get(file.location) match {
      case null => Retry(settings)(StoredCheckpoint.fetch(store, path, file.location))
      case content => content
    }

  /**
   * Return the unique ids of the attempts that made the versions of pending files, by version and
   * operator. May read files, so the caller holds only `committing`.
   */
  private def idsOfPending(): Map[Long, Option[Map[String, Set[String]]]] =
    synchronized(pending.versionsWithIds).map { version =>
      val path = s"commits/${version - 1}"
      val commit = change(path, isDriver = true).flatMap(_.content)
        .orElse(ledger.index.get(path).map(contentOf(path, _)))
      version -> commit.flatMap(StateFile.uniqueIds)
    }.toMap

  // -- runs --------------------------------------------------------------------------------------

  /** Throw an IOException if the run of a caller is not the current one. */
  private def check(ofRun: Option[String]): Unit = for (caller <- ofRun) {
    val current = synchronized(run)
    if (!current.contains(caller)) throw new IOException(
      s"$root: run $caller of the query has ended" +
        current.fold("")(r => s", and run $r has taken over") +
        ". This write of the old run is refused; no data are lost")
  }

  /**
   * Begin a run if the caller is the thread of this checkpoint's query, in a new run. Return
   * whether it is the thread of that query.
   */
  def beginIfOwn(caller: Caller): Boolean = caller.query.zip(caller.run).exists {
    case (query, started) =>
      // Ids of runs are unique, so that a run under way needs no look at the query's id.
      val isOwn = isCurrent(started) || isOf(query)
      if (isOwn && !isCurrent(started)) begin(query, started, caller.thread)
      isOwn
  }

  private def begin(query: String, started: String, thread: Thread): Unit =
    committing.synchronized {
      writeRiding() // of the run before, whose thread may have ended just now
      // A ledger that failed may still have a late write on its way; a new run settles that.
      val own = if (ledger.isBroken) newLedger() else ledger
      if (status(ResetNote.Name, isDriver = true).isDefined) {
        ResetNote.check(root.toString, new String(open(ResetNote.Name, isDriver = true), UTF_8))
      }
      own.begin(StoredCheckpoint.owner(started), () => checkHome())
      ledger = own
      synchronized {
        pending.clear(keepsMetadata = ledger.index.get(MetadataMarker.File).isEmpty)
        riding = Nil
        inFlight = Map.empty
        run = Some(started)
        mayRide = StartedQuery.writesOffsetsFirst(query)
        committed = versionInLedger
        closing = committed
      }
      StoredCheckpoints.remember(this)
      flushAtEndOf(thread, started)
      deleteUnneeded()
      noteQuery(query)
    }

  /** Throw an IOException if the checkpoint was exported or deleted before this run began. */
  private def checkHome(): Unit = {
    val home = Retry(settings)(store.get(CheckpointHome.Name))
    if (!home.map(CheckpointHome.idOf(root.toString, _)).contains(id)) throw new IOException(
      s"$root: the checkpoint was exported or deleted while the query was starting. This run has " +
        "written nothing; start the query again")
  }

  def isCurrent(other: String): Boolean = synchronized(run.contains(other))

  /** Whether the checkpoint belongs to a query. */
  private def isOf(query: String): Boolean = find(MetadataMarker.File, isDriver = true) match {
    case Found(null, null) => false
    case _ => new String(open(MetadataMarker.File, isDriver = true), UTF_8).contains(query)
  }

  /** Whether a call has failed, so that a new object must read the ledger again. */
  def isBroken: Boolean = ledger.isBroken

  private def noteQuery(query: String): Unit =
    for (bytes <- QueryNote.of(query, root.toString)) {
      val known = ledger.index.get(QueryNote.Key)
      if (!known.exists(file => isStored(file, bytes))) {
        synchronized(pending.put(Change(QueryNote.Key, Some(bytes), None)))
      }
    }

  /** Whether a stored file has this content. A file that can't be read is written again. */
  private def isStored(file: StoredFile, bytes: Array[Byte]): Boolean =
    try java.util.Arrays.equals(contentOf(QueryNote.Key, file), bytes)
    catch { case NonFatal(_) => false }

  /**
   * When the query's thread ends, write what waits for a commit point that will not come, and
   * release the memory.
   */
  private def flushAtEndOf(thread: Thread, ofRun: String): Unit =
    Daemons.after(thread, "sparklog-checkpoint-run") {
      committing.synchronized {
        if (isCurrent(ofRun)) {
          writeRiding()
          if (!ledger.isBroken) flushPending()
          synchronized { run = None }
          StoredCheckpoints.forget(this)
        }
      }
    }

  private def flushPending(): Unit =
    try {
      val ids = idsOfPending()
      append(pending.take(committed, ids))
    } catch {
      case NonFatal(e) => logWarning(s"$root: the last snapshots of the state were not stored", e)
    }
}

object StoredCheckpoint {
  val CacheBytesKey = "spark.sparklog.checkpoint.cache.bytes"
  val TimeoutKey = "spark.sparklog.checkpoint.request.timeout.ms"
  /** When a file in `commits` is written: at once (`put`), or with the next plan (`ride`). */
  val CommitKey = "spark.sparklog.checkpoint.commit"
  // The following two are set by tests only.
  val RunEntriesKey = "spark.sparklog.checkpoint.internal.run.entries"
  val EntryBytesKey = "spark.sparklog.checkpoint.internal.entry.bytes"
  private val EntryBytes = 32L << 20 // S3A writes larger objects in several requests

  private def areCommitsRiding(conf: Configuration): Boolean = conf.get(CommitKey, "put") match {
    case "put" => false
    case "ride" => true
    case other => throw new IllegalArgumentException(
        s"$CommitKey must be put (write the commit of each micro-batch at once) or ride (write " +
          s"it together with the next micro-batch's plan); got $other")
  }

  /** Read a file from its location. Throws an IOException if it is missing or damaged. */
  def fetch(store: ObjectStore, path: String, location: Location): Array[Byte] =
    store.get(location.obj, location.position, location.batchBytes) match {
      case Some(bytes) => StoredFile.content(path, location, bytes)
      case None => throw new FileNotFoundException(
          s"the object ${location.obj} with the file $path of the checkpoint is missing. Either " +
            "another driver has taken over this query, or the object was deleted: restore it " +
            "from a copy or from an older version of the bucket")
    }

  private def owner(run: String): String = {
    val fields = StoredFile.mapper.createObjectNode()
    val env = org.apache.spark.SparkEnv.get
    fields.put("application", if (env == null) "" else env.conf.getAppId)
    fields.put("host", CheckpointRpc.host)
    fields.put("process", ProcessHandle.current().pid())
    fields.put("runId", run)
    StoredFile.mapper.writeValueAsString(fields)
  }
}

/** Contents of files in memory, up to a total size; those that were not used for long go first. */
final class ContentCache(maxBytes: Long) {
  private val contents =
    new java.util.LinkedHashMap[Location, Array[Byte]](64, 0.75f, /* accessOrder = */ true)
  private var bytes = 0L

  def get(location: Location): Array[Byte] = synchronized(contents.get(location))

  def put(location: Location, content: Array[Byte]): Unit = synchronized {
    if (content.length <= maxBytes / 4) {
      val old = contents.put(location, content)
      bytes += content.length - (if (old == null) 0 else old.length)
      val eldest = contents.entrySet().iterator()
      while (bytes > maxBytes) {
        bytes -= eldest.next().getValue.length
        eldest.remove()
      }
    }
  }
}
