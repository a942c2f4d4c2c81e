"""A bucket alone, read as a log.

- `opening`: opens it, and tells which paths are one
- `view`: what readers see of it, and the segments of its partitions
- `bucket`: what it holds, by its listing; `listing`: kept a while
- `no_files`: the small files of a log dir, of which it has none
"""
