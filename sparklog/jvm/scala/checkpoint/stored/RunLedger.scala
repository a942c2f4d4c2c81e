package sparklog.checkpoint.stored

import java.io.IOException
import java.util.UUID

/** Another driver has begun a run of the same query. */
final class SupersededException(message: String) extends IOException(message)

/**
 * The ledger of a checkpoint in an object store: runs of entries, each of which is created once. A
 * run has one writer, the driver that began it. A driver that begins a run seals the previous run
 * first: from then on the driver of that run can create no entry. The section "In runs" of
 * sparklog/checkpoint/log_backed/PROTOCOL.md describes the objects and the rules. Not thread-safe.
 *
 * @param directory the directory of the ledger's objects in the store
 * @param contents receives each content that was read or written
 * @param inMemory returns such a content if it is still in memory
 */
final class RunLedger(
    store: ObjectStore, directory: String, settings: LedgerSettings,
    contents: (Location, Array[Byte]) => Unit = (_, _) => (),
    inMemory: Location => Option[Array[Byte]] = _ => None) {
  import LedgerEntry.{Begin, Files, Seal}

  val index = new FileIndex
  private var run = RunLedger.NoRun
  private var next = 0L // the number of the next entry
  private var previous: Option[Place] = None // the seal of the run before this one
  private var indexObject: Option[String] = None
  private var isOurs = false
  private var owner = "{}"
  private var begun = RunLedger.NoRun
  /** The objects that the last refresh has found, until `deleteUnneeded` has used them. */
  private var lastListing = Option.empty[Seq[ObjectInfo]]
  /** Why no further call is possible: a late write of this ledger may still arrive. */
  private var broken: Option[Throwable] = None

  /** The first run that this driver began. Packs of its executors have this number. */
  def firstRun: Long = begun

  /** Whether a call has failed, so that every further call fails. */
  def isBroken: Boolean = broken.isDefined

  /** Read the entries that were added since the last call. Changes nothing in the store. */
  def refresh(): Unit = settled {
    var tries = 0
    while (!tryRefresh(tries == RunLedger.Tries)) tries += 1
  }

  /**
   * Begin a run of this driver, after the end of the newest run. From then on the driver of that
   * run can't write. `by` describes this driver, as JSON. Throws an IOException if other drivers
   * begin again and again; `check` is called at the end, and may throw as well.
   */
  def begin(by: String, check: () => Unit = () => ()): Unit = settled {
    owner = by
    var tries = 0
    while (!tryBegin()) {
      tries += 1
      if (tries == RunLedger.Tries) throw new SupersededException(
        s"$directory: other drivers of the query began $tries times while this one was starting. " +
          "Start the query on one host only")
    }
    check()
  }

  /**
   * Write an entry with the changes, durably. Throws a SupersededException if another driver has
   * begun a run; the ledger is not usable after any exception.
   */
  def append(changes: Seq[Change]): Unit = settled {
    checkOwn()
    val entry = entryAt(next, Files, changes)
    create(entry) match {
      case Right(placed) => take(placed)
      case Left(other) => throw superseded(other)
    }
  }

  /** Whether the run is long enough for `rotate`, and most of its older entries are not needed. */
  def isWorthRotating: Boolean = next >= settings.rotateEntries && {
    next >= settings.maxEntries || oldBytes(next / 2) <= settings.moveBytes / 64
  }

  /**
   * Seal this run and begin the next one, so that the next driver has fewer entries to read.
   * `moved` has the contents of `oldFiles`, which are written again.
   */
  def rotate(moved: Seq[Change]): Unit = settled {
    checkOwn()
    create(entryAt(next, Seal, Nil)).left.foreach(other => throw superseded(other))
    beginAfter(Some(Place(run, next)), moved).left.foreach(other => throw superseded(other))
  }

  /**
   * Delete the objects that no file needs. The ledger stays usable after an exception. Only the
   * driver of the newest run may call this. The first call after `begin` deletes what `begin` has
   * listed. Objects that were created since are found by the next call.
   */
  def deleteUnneeded(): Unit = {
    checkOwn()
    val found = lastListing.getOrElse(request(store.list(directory)))
    lastListing = None
    val dropped = index.takeDropped()
    store.delete(
      Deletions(directory, run, firstRun, previous, indexObject, index, dropped, settings)
        .of(found, sealOf))
  }

  private def checkOwn(): Unit = if (!isOurs) throw new IOException(
    s"$directory: only a run of the query writes its checkpoint, and this driver has begun none. " +
      "Start the query with this checkpointLocation")

  /** Run `body`. After an exception the ledger is not usable: its last write may still arrive. */
  private def settled[T](body: => T): T = {
    broken.foreach(e => throw new IOException(e.getMessage, e))
    try body
    catch {
      case e: Throwable =>
        broken = Some(e)
        throw e
    }
  }

  // -- reading -----------------------------------------------------------------------------------

  /** Return false if objects vanished because a driver began a run meanwhile. */
  private def tryRefresh(last: Boolean): Boolean = {
    val found = request(store.list(directory))
    lastListing = Some(found)
    val infos = found.map(o => o.name -> o).toMap
    val places = found.flatMap(o => Names.entry(directory, o.name))
    // A run whose first entry is missing is damaged: the run before it has an older content.
    places.map(_.run).maxOption match {
      case None => true
      case Some(newest) =>
        val numbers = places.filter(_.run == newest).map(_.number)
        if (newest != run) isOurs = false
        (newest == run || readBegin(newest, infos, last)) &&
        readEntries(numbers.max, infos, last)
    }
  }

  private def readBegin(newest: Long, infos: Map[String, ObjectInfo], last: Boolean): Boolean = {
    val place = Place(newest, 0)
    val found = get(place, infos)
    val listed = found.flatMap { entry =>
      entry.index match {
        case None => Some(entry -> Seq.empty[Change])
        case Some(obj) => read(obj, infos).map(bytes => entry -> indexed(obj, bytes))
      }
    }
    if (listed.isEmpty && last) throw missing(
      found.flatMap(_.index).getOrElse(Names.of(directory, place)))
    for ((entry, changes) <- listed) {
      index.clear()
      index.apply(changes)
      keep(changes)
      run = newest
      next = 1
      previous = entry.previous
      indexObject = entry.index
    }
    listed.isDefined
  }

  private def indexed(obj: String, bytes: Array[Byte]): Seq[Change] = {
    val (header, changes) = StoredFile.read(obj, RunLedger.IndexKey, bytes)
    val name = header.path("index").asText
    if (name != obj) throw StoredFile.swapped(obj, s"the object $name")
    changes
  }

  /** Read the run's entries from `next` up to number `end`, or to the seal. */
  private def readEntries(end: Long, infos: Map[String, ObjectInfo], last: Boolean): Boolean = {
    val waiting = (next to end).grouped(RunLedger.AtOnce).flatMap { group =>
      Fetches.all(group.map(n => () => get(Place(run, n), infos))).iterator
    }
    var complete = true
    var isSealed = false
    while (complete && !isSealed && waiting.hasNext) waiting.next() match {
      case Some(entry) if entry.kind == Seal => isSealed = true
      case Some(entry) => take(entry)
      case None => complete = false
    }
    if (!complete && last) throw missing(Names.of(directory, Place(run, next)))
    complete
  }

  private def get(place: Place, infos: Map[String, ObjectInfo]): Option[LedgerEntry] = {
    val obj = Names.of(directory, place)
    read(obj, infos).map(LedgerEntry.decode(place, obj, _))
  }

  private def read(obj: String, infos: Map[String, ObjectInfo]): Option[Array[Byte]] =
    request(infos.get(obj).fold(store.get(obj))(store.get))

  private def take(entry: LedgerEntry): Unit = {
    index.apply(entry.changes)
    keep(entry.changes)
    next = entry.place.number + 1
  }

  private def keep(changes: Seq[Change]): Unit =
    for (Change(_, Some(content), Some(file)) <- changes) contents(file.location, content)

  /** Return the number of a run's seal, which the first entry of the following run contains. */
  private def sealOf(other: Long): Option[Long] =
    get(Place(other + 1, 0), Map.empty).flatMap(_.previous).filter(_.run == other).map(_.number)

  private def missing(obj: String): IOException = new IOException(
    s"the object $obj of the checkpoint is missing. Restore it from a copy or from an older " +
      "version of the bucket, or start the query with a new checkpointLocation")

  // -- writing -----------------------------------------------------------------------------------

  private def tryBegin(): Boolean = {
    refresh()
    val sealPlace = if (run == RunLedger.NoRun) None else Some(sealNewest())
    beginAfter(sealPlace, smallFiles).isRight
  }

  /**
   * Return the newest files that are in memory, up to a total size. The index of this run holds
   * their contents, so that the next start reads them in one request, and not one by one.
   */
  private def smallFiles: Seq[Change] = {
    var total = 0L
    index.below("").sortBy(-_._2.timestamp)
      .flatMap { case (path, file) =>
        inMemory(file.location).map(content => Change(path, Some(content), Some(file)))
      }
      .takeWhile { change =>
        total += change.content.fold(0)(_.length)
        total <= settings.beginBytes
      }
  }

  /** Create the seal at the first missing number. Entries that are there meanwhile are read. */
  private def sealNewest(): Place = {
    var found: Option[Place] = None
    while (found.isEmpty) {
      val place = Place(run, next)
      create(entryAt(next, Seal, Nil)) match {
        case Right(_) => found = Some(place)
        case Left(other) if other.kind == Seal => found = Some(place)
        case Left(other) => take(other)
      }
    }
    found.get
  }

  /** Create the first entry of the next run. Return another driver's entry if it was first. */
  private def beginAfter(
      sealPlace: Option[Place], moved: Seq[Change]): Either[LedgerEntry, LedgerEntry] = {
    val place = Place(run + 1, 0)
    val listing =
      if (index.size == 0) None
      else Some(putIndex(place.run, moved.flatMap(c => c.content.map(c.path -> _)).toMap))
    val entry = LedgerEntry(
      place, Begin, RunLedger.attempt(), sealPlace, listing.map(_._1), owner, Nil)
    val made = create(entry)
    if (made.isRight) {
      // The contents that the index object holds are where the next reader finds them.
      for ((_, changes) <- listing) index.apply(changes)
      run = place.run
      next = 1
      if (begun == RunLedger.NoRun) begun = run
      previous = sealPlace
      indexObject = listing.map(_._1)
      isOurs = true
    } else run = RunLedger.NoRun // what was read may be outdated, so the next refresh begins anew
    made
  }

  private def putIndex(
      newRun: Long, moved: Map[String, Array[Byte]]): (String, Seq[Change]) = {
    val obj = Names.newIndex(directory, newRun)
    val now = settings.nowMs()
    val builder = new ObjectBuilder(obj, newRun, now)
    val header = StoredFile.mapper.createObjectNode().put("index", obj)
    builder.addHeader(RunLedger.IndexKey, header, index.size)
    val changes = index.below("").map { case (path, file) =>
      moved.get(path) match {
        case Some(content) =>
          val location = builder.add(path, StoredFile.Content, content, file.timestamp)
          Change(path, Some(content), Some(file.copy(location = location)))
        case None => builder.add(Change(path, None, Some(file)))
      }
    }
    request(store.put(obj, builder.bytes))
    keep(changes)
    obj -> changes
  }

  private def isOld(obj: String, half: Long): Boolean = Names.entry(directory, obj) match {
    case Some(place) => place.run < run || place.number < half
    case None => indexObject.contains(obj)
  }

  private def oldBytes(half: Long): Long =
    index.objects.iterator.filter(isOld(_, half)).map(index.bytesIn).sum

  /** Return the files of old entries that `rotate` should write again, up to a total size. */
  def oldFiles: Seq[(String, StoredFile)] = {
    val half = next / 2
    var total = 0L
    index.below("").filter(f => isOld(f._2.location.obj, half))
      .sortBy(_._2.location.obj)
      .takeWhile { case (_, file) =>
        total += file.location.batchBytes
        total <= settings.moveBytes
      }
  }

  private def entryAt(number: Long, kind: String, changes: Seq[Change]): LedgerEntry =
    LedgerEntry(Place(run, number), kind, RunLedger.attempt(), None, None, owner, changes)

  /**
   * Create an entry, until it is known who created the entry of that place. Return the entry of
   * another attempt as Left. Throws an IOException if the store refuses, or does not answer in
   * time.
   */
  private def create(entry: LedgerEntry): Either[LedgerEntry, LedgerEntry] = {
    val obj = Names.of(directory, entry.place)
    val (bytes, placed) = LedgerEntry.encode(entry, obj, settings.nowMs())
    var outcome: Option[Either[LedgerEntry, LedgerEntry]] = None
    val retry = new Retry(settings)
    while (outcome.isEmpty) {
      // A lost answer: the object may be there, or may come later. Only its name settles it.
      val created = retry.attempt(store.create(obj, bytes))
      if (created.contains(true)) outcome = Some(Right(placed))
      else {
        val there = retry.attempt(store.get(obj)).flatten
        for (content <- there) {
          val found = LedgerEntry.decode(entry.place, obj, content)
          outcome = Some(if (found.attempt == entry.attempt) Right(placed) else Left(found))
        }
        if (created.contains(false) && there.isEmpty) {
          retry.attempt(throw new IOException(s"$obj exists, but can't be read"))
        }
      }
    }
    outcome.get
  }

  private def request[T](body: => T): T = Retry(settings)(body)

  private def superseded(by: LedgerEntry): SupersededException = {
    isOurs = false
    new SupersededException(
      s"$directory: another driver has taken over this query (${by.owner}). This write of the " +
        "old run is refused; no data are lost. Stop this query, or create a separate checkpoint " +
        "for it with sparklog.checkpoint.fork")
  }
}

object RunLedger {
  private val IndexKey = "sparklog.index"
  private val NoRun = -1L
  private val Tries = 10
  private val AtOnce = 64

  private def attempt(): String = UUID.randomUUID().toString
}
