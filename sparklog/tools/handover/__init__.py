"""`sparklog handover`: a log becomes a directory that a stock Kafka broker starts on and serves.

- `handing_over`: the whole step
- `inventory`: what is handed over: topics, their ids, configs, offsets, leader epochs
- `metadata_changes`: the records by which a cluster's metadata comes to know it
- `bootstrap_checkpoint`: where they go: a new cluster's first records, or a log that exists
- `server_properties`: the broker's settings
- `group_offsets_csv`: registered readers, for kafka-consumer-groups
"""
