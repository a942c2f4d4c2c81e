package sparklog.format

/**
 * A batch of one record exceeds the partition's max.message.bytes.
 *
 * @param index of the record in the builder's batch, from 0
 * @param sizeBytes of a batch with this record alone, compressed if the batch would be
 */
final class RecordTooLarge(val index: Int, val sizeBytes: Long, val maxMessageBytes: Int)
    extends Exception(
      s"record $index makes a batch of $sizeBytes bytes, max.message.bytes is $maxMessageBytes")
