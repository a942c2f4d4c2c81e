"""What the command line does, as Python functions: no terminal, no Spark.

- `topics`, `configs`, `get_offsets`, `delete_records`, `log_dirs`: Kafka's tools of these names
- `console/`: kafka-console-consumer and -producer
- `dump/`: kafka-dump-log
- `handover/`: a log becomes a directory that a Kafka broker starts on
- `moving/`: import and export: Kafka, Parquet, Delta, log dirs
- `report/`: a log as numbers, and as one HTML page
"""
