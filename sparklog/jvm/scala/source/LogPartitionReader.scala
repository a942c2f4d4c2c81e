package sparklog.source

import java.io.{InterruptedIOException, IOException}
import java.nio.channels.ClosedByInterruptException

import scala.util.control.NonFatal

import org.slf4j.LoggerFactory

import org.apache.spark.TaskKilledException
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.metric.CustomTaskMetric
import org.apache.spark.sql.connector.read.PartitionReader
import org.apache.spark.sql.types.StructType

import sparklog.format.RecordCursor

/**
 * Reads the pieces of a task in order. The JVM reads the pieces that are planned for the JVM;
 * `python` reads the rest. If a piece differs from the plan, Python continues at the offset that
 * was reached, so that only Python reports, retries or skips errors in a log.
 *
 * Memory: 64 KiB to 2 MiB of a segment, and the uncompressed records of a batch; never more than
 * twice RecordCursor.MaxPlainBytes.
 *
 * @param python for (piece, at): reads that piece of the plan from offset `at` on, and the
 *   following pieces up to the next one for the JVM
 */
final class LogPartitionReader(
    plan: ReadPlan, schema: StructType, python: (Int, Long) => PartitionReader[InternalRow])
    extends PartitionReader[InternalRow] {
  import LogPartitionReader._

  private val cursor = new RecordCursor
  private val segment = new SegmentReader
  private val record = new RecordRow(Column.of(schema), cursor)
  private val counts = new ReadMetrics

  private var index = 0 // of the current piece, or of the next one
  private var piece: PieceReader = _
  private var other: PartitionReader[InternalRow] = _ // Python's reader, while it reads
  private var row: InternalRow = _

  override def next(): Boolean = {
    var found = false
    while (!found && (piece != null || other != null || index < plan.pieces.length)) {
      found =
        if (piece != null) nextOfPiece()
        else if (other != null) nextOfOther()
        else begin()
    }
    found
  }

  override def get(): InternalRow = row

  /** Begin the next piece. Always returns false, because there is no row yet. */
  private def begin(): Boolean = {
    val planned = plan.pieces(index)
    if (planned.files == null) handOver(planned.start)
    else guarded(planned.start) {
      piece = new PieceReader(planned, plan.standing, segment, cursor)
      record.of(planned)
      row = record
      false
    }
    false
  }

  private def nextOfPiece(): Boolean = {
    val reader = piece
    try {
      if (reader.next()) return true
      counts.jvmPieces += 1
      index += 1
      closePiece()
    } catch { case e: Exception => handOverFor(e, reader.at) }
    false
  }

  private def guarded(at: Long)(body: => Boolean): Boolean =
    try body
    catch { case e: Exception => handOverFor(e, at); false }

  private def nextOfOther(): Boolean = {
    val found = other.next()
    if (found) row = other.get()
    else closeOther()
    found
  }

  /** Let Python continue at `at`, unless the task was interrupted. */
  private def handOverFor(reason: Exception, at: Long): Unit = {
    reason match {
      case e: ClosedByInterruptException => throw e
      case e: InterruptedIOException => throw e
      case e: TaskKilledException => throw e
      case e: IOException =>
        Interrupts.check(); log.debug("{}; Python continues at offset {}", e, at)
      case NonFatal(e) =>
        Interrupts.check();
        log.warn(s"the read in the JVM failed; Python continues at offset $at", e)
      case e => throw e
    }
    handOver(at)
  }

  private def handOver(at: Long): Unit = {
    closePiece()
    val first = index
    index += 1
    while (index < plan.pieces.length && plan.pieces(index).files == null) index += 1
    counts.pythonPieces += index - first
    other = python(first, at)
  }

  override def currentMetricsValues(): Array[CustomTaskMetric] = counts.values(segment.bytesRead)

  private def closePiece(): Unit = if (piece != null) {
    piece.close()
    piece = null
  }

  private def closeOther(): Unit = if (other != null) {
    other.close()
    other = null
  }

  override def close(): Unit = {
    index = plan.pieces.length
    try closeOther()
    finally {
      closePiece()
      segment.close()
      cursor.release()
    }
  }
}

private object LogPartitionReader {
  private val log = LoggerFactory.getLogger("sparklog")
}
