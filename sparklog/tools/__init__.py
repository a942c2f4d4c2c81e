"""The functions behind the command line, usable from Python without a terminal and without Spark.

- `topics`, `configs`, `get_offsets`, `delete_records`, `log_dirs`: Kafka's tools of these names
- `reader_groups`: kafka-consumer-groups
- `console/`: kafka-console-consumer and kafka-console-producer
- `dump/`: kafka-dump-log
- `handover/`: turns a log into a directory that a Kafka broker starts on
- `moving/`: import from and export to Kafka, log dirs and stores
"""
