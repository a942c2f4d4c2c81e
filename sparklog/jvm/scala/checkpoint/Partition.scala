package sparklog.checkpoint

import java.io.IOException
import java.nio.ByteBuffer
import java.nio.channels.FileChannel
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, NoSuchFileException, Path, StandardOpenOption}
import java.nio.file.attribute.BasicFileAttributes
import java.util.concurrent.locks.ReentrantLock

import scala.collection.mutable
import scala.util.control.NonFatal

import org.apache.hadoop.fs.FileAlreadyExistsException

import org.apache.spark.internal.Logging

/** An existing file of the checkpoint: the location of its newest record. */
final case class Entry(segment: Segment, position: Long, bytes: Int, batch: RecordBatch)

/**
 * A partition of the log dir, which contains the files of one directory of the checkpoint.
 * Thread-safe.
 */
final class Partition(directory: Path, locks: Locks, settings: () => Settings) {
  private val name = directory.getFileName.toString
  private val tag = Layout.tag(name)
  private val lock = Locks.ofPartition(name)
  private val mutex = new ReentrantLock
  private val segments = mutable.ArrayBuffer.empty[Segment]
  private val live = mutable.LinkedHashMap.empty[String, Entry]
  private val lost = mutable.LinkedHashMap.empty[String, Damage] // damaged, without a newer record
  private var liveBytes = 0L
  private var nextOffset = 0L
  private var lastBatch = (0L, 0) // position and bytes
  private var epoch = Partition.FirstEpoch

  /** Return the existing files, by key. */
  def entries(): Seq[(String, Entry)] = exclusively {
    refresh()
    live.toSeq
  }

  def get(key: String): Option[Entry] = exclusively {
    refresh()
    live.get(key)
  }

  /**
   * Return the content of a file, or None if the file does not exist. Throws an IOException with
   * segment and position if the record is damaged.
   */
  def read(key: String): Option[ByteBuffer] = exclusively {
    get(key).map { entry =>
      val buffer = entry.segment.read(entry.position, entry.bytes)
      if (!RecordBatch.isSound(buffer, 0, entry.bytes)) {
        throw Damage(entry.segment, entry.position, short = false).error(
          "the CRC of the batch does not match")
      }
      buffer.position(entry.batch.valueAt).limit(entry.batch.valueAt + entry.batch.valueLength)
    }
  }

  /**
   * Write a whole file. Throws a FileAlreadyExistsException if the file exists and `overwrite` is
   * false.
   */
  def put(key: String, value: Array[Byte], length: Int, overwrite: Boolean): Unit =
    writing {
      if (!overwrite && live.contains(key)) {
        throw new FileAlreadyExistsException(s"the file $key exists already in $directory")
      }
      append(key, value, length)
      cleanIfWorthIt()
    }

  /** Delete files; missing ones are ignored. */
  def delete(keys: Iterable[String]): Unit = {
    val known = exclusively { refresh(); keys.filter(live.contains) }
    if (known.nonEmpty) writing {
      known.filter(live.contains).foreach(append(_, Array.emptyByteArray, -1))
      cleanIfWorthIt()
    }
  }

  /**
   * Truncate the torn tail that a power cut left. `lenient`: truncate at the first damage even if
   * valid batches follow, because a session with loose flushing may lose more than the last batch.
   */
  def recover(lenient: Boolean): Unit = exclusively {
    locks.hold(lock) {
      forget()
      openAll()
      for (damage <- scan(stepping = !lenient)) {
        val later = segments.drop(segments.indexOf(damage.segment) + 1)
        if (!lenient && (later.nonEmpty || damage.isFollowed)) {
          throw damage.error("a batch is damaged, and valid batches follow")
        }
        later.reverseIterator.foreach(s => Files.delete(s.path))
        truncate(damage)
        forget()
      }
    }
  }

  /** Close the files unless a thread is using this partition. The state remains in memory. */
  def rest(): Unit = if (mutex.tryLock()) {
    try {
      // tryLock also succeeds in a thread that is in the middle of using this partition.
      if (mutex.getHoldCount == 1) {
        segments.filterNot(_.rests).foreach(s => settings().flush.closing(s.channel))
        segments.foreach(_.close())
        OpenFiles.closed(this)
      }
    } finally mutex.unlock()
  }

  /** Run `body` while no other thread of this JVM uses this partition. */
  private def exclusively[T](body: => T): T = {
    mutex.lock()
    try {
      OpenFiles.used(this, settings().openFiles)
      body
    } finally mutex.unlock()
  }

  private def writing[T](body: => T): T = exclusively {
    locks.hold(lock) {
      refresh(locked = true)
      body
    }
  }

  private def append(key: String, value: Array[Byte], length: Int): Unit = {
    if (segments.isEmpty || segments.last.end >= settings().segmentBytes) roll()
    val segment = segments.last
    val batch = RecordBatch.encode(
      nextOffset, epoch.number, System.currentTimeMillis(), key.getBytes(UTF_8), value, length,
      tag)
    try {
      if (segment.end == 0) secure() // another process may have created it and crashed
      segment.append(batch)
      settings().flush.written(segment.channel)
    } catch {
      case NonFatal(e) => // never sync again: a second fsync may succeed without the data
        try segment.channel.truncate(segment.end)
        catch { case NonFatal(t) => e.addSuppressed(t) }
        forget()
        throw new IOException(s"${segment.path}: the file $key was not written: ${e.getMessage}", e)
    }
    seen(segment)(segment.end, batch, 0, batch.limit())
    segment.end += batch.limit()
  }

  private def roll(): Unit = {
    if (segments.isEmpty) Durable.createDirectory(directory)
    val path = Segment.pathOf(directory, nextOffset)
    Files.createFile(path)
    segments += new Segment(path)
  }

  /** Write the leader epochs and sync the directory before the first record of a segment. */
  private def secure(): Unit = {
    val epochs = directory.resolve(Partition.EpochFile)
    if (!Files.exists(epochs)) Durable.write(
      epochs, "0\n1\n0 0\n".getBytes(UTF_8), directory.resolve(s"${Partition.EpochFile}.tmp"))
    Durable.sync(directory)
  }

  /**
   * Read the records that other processes have appended since the last call. `locked`: this thread
   * holds the write lock, so an incomplete batch at the end is a torn write and is truncated.
   */
  private def refresh(locked: Boolean = false): Unit = {
    val isSame = !segments.exists(_.rests) || segments.forall(_.awake())
    if (!isSame || segments.isEmpty || isReplaced) {
      forget()
      openAll()
    }
    if (segments.nonEmpty && segments.last.channel.size < segments.last.end) {
      forget() // another process truncated a write after its fsync failed
      openAll()
    }
    var damaged = scan()
    // Other processes may have filled the last known segment and added more.
    while (damaged.isEmpty && mayBeFollowed && openAll()) damaged = scan()
    for (damage <- damaged) {
      if (locked) {
        val torn = damage.short && (damage.segment eq segments.last) && !damage.isFollowed
        if (!torn) throw damage.error("the bytes are not a complete batch")
        truncate(damage)
      } else if (!damage.short && locks.isReadOnly) {
        val isLast = (damage.segment eq segments.last) && !damage.isFollowed
        if (!(isLast && LogDir.tellsPowerCut(locks))) {
          throw damage.error("the bytes are not a complete batch")
        }
      } else if (!damage.short) {
        // A concurrent write can look like this for a moment. Only if the damage is still there
        // while no other process writes is it an error.
        locks.hold(lock)(refresh(locked = true))
      }
    }
  }

  private def mayBeFollowed: Boolean = segments.nonEmpty &&
    (segments.last.end >= settings().segmentBytes ||
      Files.exists(Segment.pathOf(directory, nextOffset)))

  private def isReplaced: Boolean =
    try {
      val now = Files.readAttributes(segments.last.path, classOf[BasicFileAttributes])
      now.fileKey() != segments.last.inode
    } catch {
      case _: NoSuchFileException => true
    }

  private def forget(): Unit = {
    segments.foreach(_.close())
    segments.clear()
    live.clear()
    lost.clear()
    liveBytes = 0
    nextOffset = 0
  }

  /** Open the segments that aren't open yet. Return whether there were any. */
  private def openAll(): Boolean = Files.isDirectory(directory) && {
    val known = segments.map(_.path).toSet
    val found = Segment.list(directory).filterNot(known)
    found.foreach(p => segments += new Segment(p))
    epoch = Partition.epochOf(directory)
    found.nonEmpty
  }

  private def scan(stepping: Boolean = true): Option[Damage] = {
    val from = segments.lastIndexWhere(_.end > 0).max(0)
    val damaged = segments.drop(from).iterator.map(walk(_, stepping)).collectFirst {
      case Some(d) => d
    }
    nextOffset = math.max(nextOffset, epoch.start)
    for ((key, damage) <- lost if damaged.isEmpty) {
      throw damage.error(
        s"the record of the file $key is damaged, and no newer record of the file follows")
    }
    damaged
  }

  /**
   * Read the rest of a segment. Damaged batches before valid batches are skipped if the files that
   * they belong to are known.
   */
  private def walk(segment: Segment, stepping: Boolean): Option[Damage] = {
    var damage = segment.walk(seen(segment))
    while (stepping && damage.exists(stepOver)) damage = segment.walk(seen(segment))
    damage
  }

  private def stepOver(damage: Damage): Boolean = {
    val segment = damage.segment
    val base = segments.lift(segments.indexOf(segment) + 1).map(_.base)
    val found = damage.examine(nextOffset, base, tag)
    for ((records, until) <- found) {
      for (record <- records) {
        Partition.warn(
          s"${segment.path} at position ${record.position}: a record of the file ${record.key} " +
            "is damaged. The record is skipped, because a newer one may replace it")
        if (record.isDeletion) {
          live.remove(record.key).foreach(old => liveBytes -= old.bytes)
          lost.remove(record.key)
        } else lost.getOrElseUpdate(record.key, damage.copy(position = record.position))
      }
      segment.end = until
    }
    found.isDefined
  }

  private def seen(segment: Segment)(
      position: Long, buffer: ByteBuffer, at: Int, bytes: Int): Unit = {
    val batch =
      try RecordBatch.decode(buffer, at, bytes)
      catch {
        case NonFatal(e) => throw Damage(segment, position, short = false).error(e.getMessage)
      }
    checkOwner(segment, position, batch)
    live.remove(batch.key).foreach(old => liveBytes -= old.bytes)
    lost.remove(batch.key)
    if (!batch.isDeletion) {
      live.put(batch.key, Entry(segment, position, bytes, batch))
      liveBytes += bytes
    }
    lastBatch = (position, bytes)
    segment.lastIs(position, buffer, at)
    nextOffset = batch.offset + 1
  }

  /** Throw an IOException if the batch belongs to another partition or segment. */
  private def checkOwner(segment: Segment, position: Long, batch: RecordBatch): Unit = {
    if (batch.tag != tag && batch.tag != RecordBatch.NoTag) throw new IOException(
      s"${segment.path} at position $position: the record was written to another partition, not " +
        s"to $name. Partitions or their segment files were swapped or copied. With the query " +
        "stopped, move each file back to its partition (`sparklog checkpoint verify CHECKPOINT` " +
        "names them), or restore the checkpoint from a copy")
    val first = math.max(segment.base, nextOffset)
    if (position == 0 && batch.offset < first) throw new IOException(
      s"${segment.path}: the segment begins with offset ${batch.offset}, but its name says " +
        s"${segment.base}, and the previous segment ends at $nextOffset. Segment files were " +
        "swapped or copied. With the query stopped, move each file back to its name, or restore " +
        "the checkpoint from a copy")
  }

  private def truncate(damage: Damage): Unit = {
    damage.segment.channel.truncate(damage.position)
    damage.segment.channel.force(true)
  }

  /** Rewrite the segments if most of their bytes are no longer needed. */
  private def cleanIfWorthIt(): Unit = {
    val all = segments.map(_.end).sum
    if (all - liveBytes > liveBytes + Partition.MinDeadBytes) {
      // From the lowest offset on: a deletion may be dropped only after the records that it
      // deleted.
      segments.toSeq.foreach(clean)
      forget()
      openAll()
      scan()
    }
  }

  /** Rewrite a segment with only its live batches, byte for byte, and the last batch of the log. */
  private def clean(segment: Segment): Unit = {
    val last = segment eq segments.last
    val kept = live.valuesIterator.filter(_.segment eq segment).map(e => (e.position, e.bytes))
    // The last batch is kept even if it is dead: its offset tells the next writer where to
    // continue.
    val spans = (kept.toSeq ++ (if (last) Some(lastBatch) else None)).distinct.sorted
    if (spans.isEmpty) {
      Files.delete(segment.path)
      Durable.sync(directory)
    } else if (spans.map(_._2.toLong).sum < segment.end) {
      val cleaned = Partition.cleanedOf(segment.path)
      val out = FileChannel.open(cleaned, StandardOpenOption.CREATE, StandardOpenOption.WRITE,
        StandardOpenOption.TRUNCATE_EXISTING)
      try {
        for ((position, bytes) <- spans) {
          var copied = 0L
          while (copied < bytes) {
            copied += segment.channel.transferTo(position + copied, bytes - copied, out)
          }
        }
        // Before the rename, or a power cut could leave an incomplete segment under the final name.
        out.force(true)
      } finally out.close()
      Durable.rename(cleaned, segment.path)
    }
  }
}

object Partition extends Logging {
  private def warn(text: String): Unit = logWarning(text)

  val EpochFile = "leader-epoch-checkpoint"
  val MinDeadBytes: Long = 64 << 10

  def cleanedOf(segment: Path): Path = segment.resolveSibling(s"${segment.getFileName}.cleaned")

  /** A leader epoch and its first offset. The new epoch of a fork may begin after a gap. */
  final case class Epoch(number: Int, start: Long)

  val FirstEpoch: Epoch = Epoch(0, 0)

  /** Return the last entry of the partition's leader-epoch-checkpoint. */
  def epochOf(directory: Path): Epoch = {
    val file = directory.resolve(EpochFile)
    val lines = if (Files.exists(file)) Files.readString(file).linesIterator.toSeq else Nil
    lines.drop(2).lastOption.fold(FirstEpoch) { line =>
      val fields = line.trim.split(" ")
      Epoch(fields(0).toInt, fields(1).toLong)
    }
  }
}
