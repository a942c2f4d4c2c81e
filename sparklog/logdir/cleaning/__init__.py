"""Log compaction, as Kafka's cleaner does it: of each key the newest record stays.

- `plan`: what may be cleaned, in which groups
- `transactions`: the aborted ones, from the segments' indexes
- `rewrite`: the long part, without a lock: the offset map, then new files `.cleaned`
- `cleaned_segment`: a segment as it is read to be rewritten, and the new one beside it
- `erasure`: records that a predicate chooses go, on demand, of any topic
- `cleaner`: one partition from plan by way of the swap (partition/segment_swap) to checkpoint;
  which partitions want it

Which records stay does not depend on the home: see `sparklog.log.dirty_ratio` and
`sparklog.log.record_cleaning`.

Source: LogCleanerManager, Cleaner, CleanedTransactionMetadata, LocalLog.replaceSegments (4.1).
"""
