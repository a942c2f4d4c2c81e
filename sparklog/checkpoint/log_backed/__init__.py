"""A log-backed checkpoint: its files are records of partitions in Kafka's format.

- `layout`: the partition and key of a file's records
- `partition`: reads records, and distinguishes a torn tail from damage; `partition_writer`:
  appends and cleans records; `file_lookup`: reads a single file
- `lock`: `sparklog.lock`; `metadata_marker`: a file that makes Spark's own manager fail
- `damaged_records`: identifies damaged records
"""
