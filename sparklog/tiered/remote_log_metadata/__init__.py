"""`__remote_log_metadata`: the metadata of a log's copies, as an internal topic (KIP-405).

- `topic`: writes and reads the topic, also for readers of a log; `records`: Kafka's encoding
- `metadata_cache`: all copies, and the readable ones
- `rebuild`: restores the metadata from the bucket
"""
