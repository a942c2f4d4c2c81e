"""Segments that go.

- `due_segments`: which, and why; decides only
- `deletion`: the short steps under the write lock
- `deleted_files`: `.deleted` files until their delay is over
"""
