"""Segments that go.

- `local_segments`: those on disk; which go, and why, decides `sparklog.log.due_segments`
- `due_partitions`: where anything may be due, by one stat a partition, without the lock
- `partition_retention`: what it goes by in a partition: directory, config, offsets
- `idle_rolling`: segment.idle.ms, and a roll that deletion asks for
- `segment_deletion`: the short steps under the write lock
"""
