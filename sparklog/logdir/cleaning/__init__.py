"""Log compaction like Kafka's cleaner: the newest record of each key remains.

- `plan`: which segments can be cleaned, in which groups
- `rewrite`: the long part, without a lock: builds the offset map, then writes `.cleaned` files
- `cleaned_segment`: reads a segment to rewrite, and writes the new segment beside it
- `erasure`: erases records that match a predicate, on demand, in any topic
- `cleaner`: cleans a partition, from the plan to the swap (partition/segment_swap) and the
  checkpoint; chooses partitions to clean

Which records remain does not depend on the home: `sparklog.log.dirty_ratio`,
`sparklog.log.record_cleaning`.

Source: LogCleanerManager, Cleaner, CleanedTransactionMetadata, LocalLog.replaceSegments (4.1).
"""
