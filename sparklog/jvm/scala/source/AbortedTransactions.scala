package sparklog.source

import scala.collection.mutable

import sparklog.format.{BatchHeader, Varint}

/**
 * Determines which batches, in log order, belong to an aborted transaction: the batches of its
 * producer from the first offset to the transaction's marker. Source: AbortedFilter in
 * sparklog/log/aborted_transactions.py.
 *
 * @param planned for each aborted transaction: producer id, first offset, offset of the marker
 */
private[source] final class AbortedTransactions(planned: Array[Long]) {
  import AbortedTransactions._

  private val waiting = planned.grouped(3).map(t => Transaction(t(1), t(0), t(2))).toArray.sorted
  private var begun = 0
  private val markers = mutable.LongMap.empty[Long] // of producers with an open transaction

  /**
   * Return whether the batch, which is stored at `at` of `bytes`, belongs to an aborted
   * transaction.
   */
  def holds(header: BatchHeader, bytes: Array[Byte], at: Int): Boolean = {
    if (!header.isTransactional || (begun == waiting.length && markers.isEmpty)) return false
    val last = header.lastOffset
    while (begun < waiting.length && waiting(begun).first <= last) {
      val one = waiting(begun)
      markers(one.producer) = math.max(one.marker, markers.getOrElse(one.producer, -1L))
      begun += 1
    }
    if (header.isControl) {
      if (header.count > 0 && isAbort(bytes, at + BatchHeader.HeaderBytes, at + header.sizeBytes)) {
        markers -= header.producerId
      }
      false
    } else markers.getOrElse(header.producerId, -1L) > last
  }
}

private object AbortedTransactions {
  private final case class Transaction(first: Long, producer: Long, marker: Long)

  private implicit val order: Ordering[Transaction] =
    Ordering.by(t => (t.first, t.producer, t.marker))

  private val Abort = 0
  private val Commit = 1

  /**
   * Return whether the record of a control batch, in [start, stop), aborts a transaction. Throws a
   * PlanMismatch for an incomplete control record. Source: sparklog/format/control.py.
   */
  private def isAbort(bytes: Array[Byte], start: Int, stop: Int): Boolean = {
    var at = start
    def number(): Long = {
      val size = Varint.sizeAt(bytes, at, stop, Varint.LongBytesMax)
      if (size == 0) bad("a number is incomplete")
      val value = Varint.get(bytes, at, size)
      at += size
      value
    }
    def field(least: Int): Int = {
      val size = number()
      if (size < least || size > stop - at) bad(s"a field has an impossible size of $size bytes")
      val found = at
      at += size.toInt
      found
    }
    if (number() != stop - at) bad("the length of the record does not match its batch")
    at += 1 // attributes
    number() // the timestamp's delta
    number() // the offset's
    val key = field(4)
    val version = BatchHeader.shortAt(bytes, key)
    val kind = BatchHeader.shortAt(bytes, key + 2)
    if (version < 0) bad(s"the version of the key is $version")
    val valueSize = at
    field(0)
    if (kind == Abort || kind == Commit) {
      at = valueSize
      val value = field(6)
      if (BatchHeader.shortAt(bytes, value) < 0) bad("the version of the value is negative")
    }
    kind == Abort
  }

  private def bad(reason: String): Nothing =
    throw new PlanMismatch(s"a control record is damaged: $reason")
}
