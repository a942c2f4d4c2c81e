"""`sparklog handover`: a log becomes a directory that a stock Kafka broker starts on and serves.

- `log_handover`: the whole step
- `existing_cluster`: topics that come into a cluster which has topics of its own
- `inventory`: what is handed over: topics, their ids, configs, offsets, leader epochs
- `metadata_changes`: the records by which a cluster's metadata comes to know it
- `bootstrap_checkpoint`: where they go: a new cluster's first records, or a log that exists
- `notes`: what is otherwise in the broker than here
- `server_properties`: the broker's settings
- `group_offsets_csv`: registered readers, for kafka-consumer-groups
"""
