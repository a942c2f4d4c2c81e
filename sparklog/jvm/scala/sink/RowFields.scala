package sparklog.sink

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.types.{BinaryType, StructType}
import org.apache.spark.unsafe.Platform
import org.apache.spark.unsafe.types.UTF8String

import sparklog.format.HeadersBuffer

/**
 * Reads the columns of rows in place; only headers are copied, in the format of a record. Key,
 * value and header parts are valid as long as the row is.
 *
 * @param columns the columns to write; sparklog/sink/columns.py has checked their types
 */
private[sink] final class RowFields(schema: StructType, columns: Array[String], faults: Faults) {
  private val keyField = field("key")
  private val valueField = field("value")
  private val headersAt = ordinal("headers")
  private val timestampAt = ordinal("timestamp")
  private val partitionAt = ordinal("partition")
  private val topicAt = ordinal("topic")
  private val headerKey = new BytesField(0, isBinary = false)
  private val headerValue = new BytesField(1, isBinary = true)
  private val buffer = new HeadersBuffer

  /**
   * The key, and below it the value: base object and offset for Spark's Platform, and the number of
   * bytes (-1: null).
   */
  var keyBase: AnyRef = _
  var keyOffset: Long = 0
  var keyBytes: Int = -1
  var valueBase: AnyRef = _
  var valueOffset: Long = 0
  var valueBytes: Int = -1
  /** The headers in the format of a record, up to `headersBytes`; 0 bytes: no headers. */
  def headers: Array[Byte] = buffer.bytes
  var headersBytes: Int = 0

  private def ordinal(name: String): Int =
    if (columns.contains(name)) schema.fieldIndex(name) else -1

  private def field(name: String): BytesField = {
    val at = ordinal(name)
    if (at < 0) null else new BytesField(at, schema(at).dataType == BinaryType)
  }

  /** Read a row. Throws a StageError for headers that a record can't have. */
  def read(row: InternalRow): Unit = {
    if (keyField != null) {
      keyField.read(row)
      keyBase = keyField.base
      keyOffset = keyField.offset
      keyBytes = keyField.bytes
    }
    valueField.read(row)
    valueBase = valueField.base
    valueOffset = valueField.offset
    valueBytes = valueField.bytes
    headersBytes = 0
    if (headersAt >= 0 && !row.isNullAt(headersAt)) readHeaders(row)
  }

  private def readHeaders(row: InternalRow): Unit = {
    val list = row.getArray(headersAt)
    val count = list.numElements()
    if (count > 0) {
      buffer.start(count)
      var i = 0
      while (i < count) {
        if (list.isNullAt(i)) throw faults("null_header")
        val header = list.getStruct(i, 2)
        headerKey.read(header)
        if (headerKey.bytes < 0) throw faults("null_header")
        headerValue.read(header)
        buffer.add(headerKey.base, headerKey.offset, headerKey.bytes,
          headerValue.base, headerValue.offset, headerValue.bytes)
        i += 1
      }
      headersBytes = buffer.sizeBytes
    }
  }

  /**
   * Return the timestamp of the row in ms, rounded down; `orElse` if the row or the schema has
   * none.
   */
  def timestampMs(row: InternalRow, orElse: Long): Long =
    if (timestampAt < 0 || row.isNullAt(timestampAt)) orElse
    else Math.floorDiv(row.getLong(timestampAt), 1000L)

  /** Return whether the row has a partition number, which may be invalid. */
  def hasPartition(row: InternalRow): Boolean = partitionAt >= 0 && !row.isNullAt(partitionAt)
  def partition(row: InternalRow): Int = row.getInt(partitionAt)

  /** Return the topic of the row; null if the row has none. */
  def topic(row: InternalRow): UTF8String =
    if (row.isNullAt(topicAt)) null else row.getUTF8String(topicAt)
}

/**
 * A string or binary column. Its bytes are described by base object and offset for Spark's
 * Platform.
 */
private[sink] final class BytesField(ordinal: Int, isBinary: Boolean) {
  var base: AnyRef = _
  var offset: Long = 0
  /** The number of bytes; -1 if the field is null. */
  var bytes: Int = -1

  def read(row: InternalRow): Unit =
    if (row.isNullAt(ordinal)) {
      base = null
      bytes = -1
    } else row match {
      // UnsafeRow stores text and bytes alike; its accessors would create an object or a copy.
      case row: UnsafeRow =>
        val place = row.getLong(ordinal)
        base = row.getBaseObject
        offset = row.getBaseOffset + (place >>> 32)
        bytes = place.toInt
      case _ if isBinary =>
        val held = row.getBinary(ordinal)
        base = held
        offset = Platform.BYTE_ARRAY_OFFSET
        bytes = held.length
      case _ =>
        val text = row.getUTF8String(ordinal)
        base = text.getBaseObject
        offset = text.getBaseOffset
        bytes = text.numBytes
    }
}
