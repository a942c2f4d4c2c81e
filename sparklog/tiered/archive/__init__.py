"""A bucket without its log, read as a log.

- `opening`: opens an archive, and detects which paths are archives
- `view`: the readers' view of an archive, and the segments of its partitions
- `bucket`: the contents of the bucket, by listing; `listing`: cached listings
- `home`: the home of an archive, which has no ledger, groups or leases
"""
