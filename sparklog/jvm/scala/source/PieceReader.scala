package sparklog.source

import java.io.Closeable
import java.nio.file.Files

import scala.util.Using

import sparklog.format.{BatchHeader, RecordCursor}

/**
 * Iterates over the records of a piece, in `cursor`. Batches must be exactly as planned, with the
 * checks of sparklog/log/partition_reader.py. Otherwise throws a PlanMismatch or another
 * IOException; no record from offset `at` on was returned then. `segment` and `cursor` are reused
 * for all pieces, so `close` does not release their memory.
 */
private[source] final class PieceReader(
    piece: Piece, standing: Array[Standing], segment: SegmentReader, cursor: RecordCursor)
    extends Closeable {
  import PieceReader._

  private val files = piece.files
  private val guard = new LogIdentity(standing, files)
  private val aborted =
    if (files.aborted.isEmpty) null else new AbortedTransactions(files.aborted)
  private val without = files.without

  /**
   * All records before this offset were returned or skipped, so another reader can continue here.
   */
  var at: Long = piece.start

  private var index = -1 // of the open segment in files.segments
  private var isFirst = true // the first batch after a lookup may begin before `at`
  private var following = Long.MaxValue // the base of the segment behind the open one
  private var isInBatch = false
  private var behindBatch = 0L
  private var span = 0 // index in `without` of the first span at or behind `at`

  /** Move to the next record. Return false if there is none. */
  def next(): Boolean = {
    while (true) {
      while (isInBatch) {
        if (cursor.next()) {
          val offset = cursor.offset
          if (without.length == 0 || !isLeftOut(offset)) {
            at = offset + 1
            return true
          }
        } else {
          isInBatch = false
          at = math.max(at, behindBatch)
        }
      }
      if (!nextBatch()) return false
    }
    false
  }

  /** Open the next batch that may have records to return. Return false if there is none. */
  private def nextBatch(): Boolean = {
    while (!isInBatch && at < piece.end) {
      if (index < 0 || isBeforeLongSpan) jump()
      if (at < piece.end) {
        if (!segment.next(at)) nextSegment()
        else {
          val header = segment.header
          checkOrder(header)
          isFirst = false
          if (header.baseOffset >= piece.end) at = piece.end // compaction left nothing before
          else if (isWanted(header)) open(header)
          else at = header.lastOffset + 1
        }
      }
    }
    isInBatch
  }

  private def open(header: BatchHeader): Unit = {
    val status = cursor.open(segment.bytes, segment.batchAt, header, at, piece.end)
    if (status != BatchHeader.Sound) throw new PlanMismatch(
      s"${files.directory}: the batch at offset ${header.baseOffset} can't be read: " +
        RecordCursor.describe(status))
    isInBatch = true
    behindBatch = header.lastOffset + 1
  }

  private def isWanted(header: BatchHeader): Boolean = {
    val isAborted =
      aborted != null && aborted.holds(header, segment.bytes, segment.batchAt)
    !isAborted && !header.isControl
  }

  private def checkOrder(header: BatchHeader): Unit = {
    val first = header.baseOffset
    val isRight =
      if (isFirst) files.gaps || first <= at else if (files.gaps) first >= at else first == at
    if (!isRight) throw new PlanMismatch(
      s"${files.directory}: the batch begins with offset $first, but offset $at was expected")
    if (header.lastOffset + 1 >= following && !segment.isAtEnd) throw new PlanMismatch(
      s"${files.directory}: segment ${files.segments(index)} continues after offset " +
        s"${header.lastOffset}, where segment $following should follow")
  }

  // --- segments -----------------------------------------------------------------------------

  /**
   * Find the segment and batch of offset `at`, after skipping a span of unwanted offsets that
   * begins there.
   */
  private def jump(): Unit = {
    if (span < without.length && without(span) <= at) at = math.min(without(span + 1), piece.end)
    if (at < piece.end) {
      val segments = files.segments
      index = math.max(index, 0)
      while (index + 1 < segments.length && segments(index + 1) <= at) index += 1
      if (segments.length == 0 || segments(index) > at) throw new PlanMismatch(
        s"${files.directory}: no segment contains offset $at")
      openSegment()
    }
  }

  private def nextSegment(): Unit = {
    val segments = files.segments
    index += 1
    // Skip a segment that was already replaced by one that reaches further.
    if (files.gaps) while (index < segments.length && segments(index) < at) index += 1
    if (index < segments.length) {
      if (!files.gaps && segments(index) != at) throw new PlanMismatch(
        s"${files.directory}: the next segment is ${segments(index)}, but offset $at was expected")
      at = math.max(at, segments(index))
      openSegment()
    } else if (files.gaps && files.next >= 0 && nothingFollows()) {
      at = piece.end
    } else throw new PlanMismatch(
      s"${files.directory} ends at offset $at, but ${piece.end} was expected")
  }

  private def openSegment(): Unit = {
    isFirst = true
    val next = if (index + 1 < files.segments.length) files.segments(index + 1) else files.next
    // During a replacement, a segment may span those that it replaces.
    following = if (files.gaps || next < 0) Long.MaxValue else next
    segment.open(files.directory, files.segments(index), at, guard)
  }

  /**
   * Return whether compaction removed all of [at, end): the last segment was not replaced, and no
   * segment before `end` was added after it.
   */
  private def nothingFollows(): Boolean = {
    val last = files.segments.last
    val names = Using.resource(Files.newDirectoryStream(files.directory, "*.log")) { entries =>
      val found = Seq.newBuilder[String]
      entries.forEach(path => found += path.getFileName.toString.stripSuffix(".log"))
      found.result()
    }
    val bases = names.flatMap(_.toLongOption)
    segment.isCurrent && !bases.exists(base => base > last && base < piece.end)
  }

  // --- offsets to leave out -----------------------------------------------------------------

  private def isLeftOut(offset: Long): Boolean = {
    while (span < without.length && without(span + 1) <= offset) span += 2
    span < without.length && without(span) <= offset
  }

  /**
   * Return whether a span of unwanted offsets begins at `at` that is so long that looking up its
   * end is faster than reading it.
   */
  private def isBeforeLongSpan: Boolean =
    without.length > 0 && isLeftOut(at) && {
      val end = without(span + 1)
      end >= piece.end || end - at >= BridgeOffsets
    }

  override def close(): Unit = guard.close()
}

private object PieceReader {
  /** The same as BRIDGE_OFFSETS in sparklog/log/arrow_reads.py. */
  val BridgeOffsets = 4096L
}
