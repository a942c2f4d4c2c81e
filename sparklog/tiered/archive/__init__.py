"""A bucket without its log, read as a log.

- `opening`: opens an archive, and detects which paths are archives
- `view`: the readers' view of an archive, and the segments of its partitions
- `bucket`: the contents of the bucket, by listing; `listing`: cached listings
- `no_files`: stands in for the small files of a log dir, which an archive lacks
"""
