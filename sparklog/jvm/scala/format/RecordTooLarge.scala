package sparklog.format

/**
 * A batch of one record is larger than a partition takes (max.message.bytes).
 *
 * @param index which record of the builder's batch it is, from 0
 * @param sizeBytes of the batch that the record makes alone, compressed if the batch would be
 */
final class RecordTooLarge(val index: Int, val sizeBytes: Long, val maxMessageBytes: Int)
    extends Exception(
      s"record $index makes a batch of $sizeBytes bytes, max.message.bytes is $maxMessageBytes")
