package sparklog.source

import org.apache.spark.sql.catalyst.expressions.{BaseGenericInternalRow, GenericInternalRow}
import org.apache.spark.sql.catalyst.util.{ArrayData, GenericArrayData}
import org.apache.spark.sql.types.StructType
import org.apache.spark.unsafe.types.UTF8String

import sparklog.format.{RecordCursor, Utf8}

/**
 * The current record of `cursor` as a row; a field is copied only when it is read. As usual in a
 * scan, the same object is used for all rows; callers that keep a row call `copy`.
 *
 * The row is no UnsafeRow: Spark puts a projection above every scan that isn't columnar, which
 * creates UnsafeRows of the remaining columns and would only copy an UnsafeRow again.
 *
 * @param columns numbers of Column, in the order of the schema of the scan
 */
private[source] final class RecordRow(columns: Array[Int], cursor: RecordCursor)
    extends BaseGenericInternalRow {
  import Column._

  private var topic: UTF8String = _
  private var partition = 0
  private var kept: ArrayData = _ // the cached headers of the record with offset `headersOf`
  private var headersOf = -1L

  /** Set the partition of the following records. */
  def of(piece: Piece): Unit = {
    topic = UTF8String.fromString(piece.topic)
    partition = piece.partition
    headersOf = -1
  }

  override def numFields: Int = columns.length

  override def isNullAt(ordinal: Int): Boolean = {
    val column = columns(ordinal)
    if (column == Key) cursor.keyBytes < 0
    else if (column == Value) cursor.valueBytes < 0
    else false
  }

  override def getBinary(ordinal: Int): Array[Byte] = {
    val column = columns(ordinal)
    if (column == Value) bytes(cursor.valueAt, cursor.valueBytes)
    else if (column == Key) bytes(cursor.keyAt, cursor.keyBytes)
    else none(ordinal)
  }

  private def bytes(at: Int, count: Int): Array[Byte] =
    if (count < 0) null else java.util.Arrays.copyOfRange(cursor.buffer, at, at + count)

  override def getUTF8String(ordinal: Int): UTF8String =
    if (columns(ordinal) == Topic) topic else none(ordinal)

  override def getInt(ordinal: Int): Int = {
    val column = columns(ordinal)
    if (column == Partition) partition
    else if (column == TimestampKind) cursor.timestampType
    else none(ordinal)
  }

  override def getLong(ordinal: Int): Long = {
    val column = columns(ordinal)
    if (column == Offset) cursor.offset
    else if (column == Timestamp) cursor.timestampMicros
    else none(ordinal)
  }

  override def getArray(ordinal: Int): ArrayData =
    if (columns(ordinal) == Headers) headers else none(ordinal)

  /** Return the headers of the current record. */
  private def headers: ArrayData = {
    // Cached, because the cursor iterates over the headers of a record only once.
    if (headersOf != cursor.offset) {
      val found = new Array[Any](cursor.headersCount)
      var n = 0
      while (cursor.nextHeader()) {
        val value = bytes(cursor.headerValueAt, cursor.headerValueBytes)
        found(n) = new GenericInternalRow(Array[Any](headerKey, value))
        n += 1
      }
      kept = new GenericArrayData(found)
      headersOf = cursor.offset
    }
    kept
  }

  private def headerKey: UTF8String = {
    val at = cursor.headerKeyAt
    val count = cursor.headerKeyBytes
    val isText = Utf8.isWellFormed(cursor.buffer, at, count)
    UTF8String.fromBytes(
      if (isText) bytes(at, count) else Utf8.mended(cursor.buffer, at, count))
  }

  // The getters of types that no column has, which differ between versions of Spark, call this.
  override protected def genericGet(ordinal: Int): Any = columns(ordinal) match {
    case Key | Value => getBinary(ordinal)
    case Topic => topic
    case Partition | TimestampKind => getInt(ordinal)
    case Offset | Timestamp => getLong(ordinal)
    case Headers => headers
  }

  private def none(ordinal: Int): Nothing = throw new UnsupportedOperationException(
    s"column $ordinal (${Column.name(columns(ordinal))}) does not have the requested type")

  // Rows are never written.
  override def setNullAt(ordinal: Int): Unit = none(ordinal)
  override def update(ordinal: Int, value: Any): Unit = none(ordinal)
}

/** The columns of records. Names and types are those of sparklog/source/schema.py. */
private[source] object Column {
  final val Key = 0
  final val Value = 1
  final val Topic = 2
  final val Partition = 3
  final val Offset = 4
  final val Timestamp = 5
  final val TimestampKind = 6
  final val Headers = 7

  private val names = Array(
    "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")

  def name(column: Int): String = names(column)

  /**
   * Return the numbers of the columns in `schema`. Throws an IllegalArgumentException for an
   * unknown column; Python rejects such a schema before.
   */
  def of(schema: StructType): Array[Int] = schema.fieldNames.map { name =>
    val column = names.indexOf(name)
    if (column < 0) throw new IllegalArgumentException(s"records have no column $name")
    column
  }
}
