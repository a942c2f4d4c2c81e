"""What the command line does, as Python functions: no terminal, no Spark.

- `topics`, `configs`, `get_offsets`, `delete_records`, `log_dirs`: Kafka's tools of these names
- `reader_groups`: kafka-consumer-groups; `console/`: kafka-console-consumer and -producer
- `dump/`: kafka-dump-log
- `handover/`: a log becomes a directory that a Kafka broker starts on
- `moving/`: import and export: Kafka, log dirs, stores
- `browse/`: records and figures of a log for people, bounded
- `report/`: a log as numbers, and as one HTML page
- `live/`: the same over HTTP, and a log's records to look through
"""
