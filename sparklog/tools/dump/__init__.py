"""kafka-dump-log: its lines, of whole files and of damaged ones.

- `dump_log`: files in Kafka's order, errors, exit; `json_lines`: the same as JSON objects
- `log`, `batch`, `records`: .log files; `index`, `time_index`: indexes and producer snapshots
- `remote_log_metadata`: payloads of __remote_log_metadata; `text`: values as Java has them
"""
