package sparklog.format

/**
 * A batch of a single record exceeds the max.message.bytes of the partition.
 *
 * @param index the number of the record in the builder's batch, from 0
 * @param sizeBytes the size of a batch with this record alone, compressed if the batch would be
 */
final class RecordTooLarge(val index: Int, val sizeBytes: Long, val maxMessageBytes: Int)
    extends Exception(
      s"record $index makes a batch of $sizeBytes bytes, but max.message.bytes is " +
        maxMessageBytes)
