"""`sparklog handover`: a log becomes a directory that a stock Kafka broker starts on and serves.

- `log_handover`: the complete step
- `existing_cluster`: hands over topics to a cluster that has topics of its own
- `inventory`: the topics that are handed over: their ids, configs, offsets, leader epochs
- `metadata_changes`: the records that add the topics to a cluster's metadata, and the differences
  between the log here and in the broker
- `bootstrap_checkpoint`: writes these records for a new cluster, or to an existing metadata log
- `server_properties`: the broker's settings
- `group_offsets_csv`: registered readers, for kafka-consumer-groups
"""
