"""Segments that go.

- `due_segments`: which, and why; decides only
- `deletion`: the short steps under the write lock
"""
