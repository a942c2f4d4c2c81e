"""The commands of the command line as Python functions, without terminal and Spark.

- `topics`, `configs`, `get_offsets`, `delete_records`, `log_dirs`: Kafka's tools of these names
- `reader_groups`: kafka-consumer-groups; `console/`: kafka-console-consumer and -producer
- `dump/`: kafka-dump-log
- `handover/`: turns a log into a directory that a Kafka broker starts on
- `moving/`: import from and export to Kafka, log dirs and stores
- `browse/`: records and statistics of a log for people, within limits
- `report/`: a log as numbers, and as an HTML page
- `live/`: the report and a log's records over HTTP
"""
