"""Log compaction, as Kafka's cleaner does it: of each key the newest record stays.

- `plan`: which stretch of a log is dirty, what may be cleaned, in which groups
- `transactions`: what may go of transactions: aborted data at once, markers later
- `rewrite`: the long part, without a lock: the offset map, then new files `.cleaned`
- `cleaner`: one partition from plan by way of the swap (partition/segment_swap) to checkpoint;
  which partitions want it; `options`: Kafka's log.cleaner.* keys

Source: LogCleanerManager, Cleaner, CleanedTransactionMetadata, LocalLog.replaceSegments (4.1).
"""
