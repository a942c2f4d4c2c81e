"""Segments that go.

- `due_segments`: which, and why; decides only
- `due_partitions`: where anything may be due, by one stat a partition, without the lock
- `segment_deletion`: the short steps under the write lock
"""
