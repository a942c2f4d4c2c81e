"""Retention: which local segments are deleted, and how.

- `local_segments`: lists local segments; `sparklog.log.due_segments` decides which are deleted
- `due_partitions`: finds partitions with expired segments by a stat per partition, without the
  lock
- `partition_retention`: the inputs of retention in a partition: directory, config, offsets
- `idle_rolling`: segment.idle.ms, and rolls before deletions
- `segment_deletion`: the short steps under the write lock
"""
