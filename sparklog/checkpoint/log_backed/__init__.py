"""A checkpoint that is kept as a log: its files are records of Kafka-format partitions.

- `layout`: which partition and key the records of a file have
- `partition`: its records, read; `partition_writer`: appended and cleaned; `file_lookup`: one file
- `lock`: `sparklog.lock`; `metadata_marker`: the file that Spark's own manager refuses
- `torn_tail`: behind the last whole batch; `damaged_records`: of which file they are
"""
