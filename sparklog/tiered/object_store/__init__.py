"""Object stores behind one protocol: retries, counts, parts.

- `registry`: the schemes of URLs, their drivers and packages
- `store`: what tiering asks of one; `object_store`: that over any driver
- `driver`: one attempt at each request; `s3_driver` and its `s3_session`, `file_driver`,
  `memory_driver`, `hdfs_driver`, and `fsspec_driver` for every other protocol
- `failures`: what an error means; `backoff`: trying again
"""
