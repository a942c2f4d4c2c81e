"""Object stores behind a common protocol: retries, counts, parts.

- `registry`: the schemes of URLs, their drivers and packages
- `store`: the interface of object stores; `object_store`: the implementation over any driver
- `driver`: a single attempt of each request; `s3_driver` and its `s3_session`, `file_driver`,
  `memory_driver`, and `fsspec_driver` for HDFS and all other protocols
- `failures`: classifies errors; `backoff`: retries
"""
