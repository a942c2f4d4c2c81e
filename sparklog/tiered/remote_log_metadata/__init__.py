"""`__remote_log_metadata`: what a log knows of its copies, as a topic of its own (KIP-405).

- `topic`: written and read; `records`: Kafka's bytes
- `metadata_cache`: which copies there are, and which are readable; `copies`: the same for readers
- `rebuild`: all of it made anew from the bucket
"""
