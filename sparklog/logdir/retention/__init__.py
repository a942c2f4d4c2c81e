"""Retention: which local segments are deleted, and how.

- `partition_retention`: the inputs of retention in a partition: directory, config, offsets,
  segments; `sparklog.log.due_segments` decides which segments are deleted
- `due_partitions`: finds partitions with expired or idle segments by a stat per partition, without
  the lock
- `segment_deletion`: the short steps under the write lock: rolls and deletions
"""
