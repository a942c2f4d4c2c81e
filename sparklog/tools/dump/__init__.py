"""kafka-dump-log: the same output for intact and damaged files.

- `dump_log`: files in Kafka's order, errors, exit code; `json_lines`: the output as JSON objects
- `log`, `batch`, `records`: .log files; `index`, `time_index`: indexes and producer snapshots
- `remote_log_metadata`: payloads of __remote_log_metadata; `text`: values in Java's format
"""
