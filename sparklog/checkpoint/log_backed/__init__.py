"""A checkpoint that is kept as a log: its files are records of Kafka-format partitions.

- `layout`: which partition and key a file has; `partition`, `partition_writer`, `lookup`
- `lock`: who writes; `metadata_marker`: what Spark's own manager refuses
- `torn_tail`, `damaged_records`: what a crash or a bad disk left
"""
