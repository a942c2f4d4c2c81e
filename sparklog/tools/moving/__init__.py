"""Imports from Kafka, and exports to Kafka, log dirs and stores.

- `import_kafka`; `export_kafka`, `export_log`: a topic
- `to_store`, `to_log_dir`: an entire log with the state of its queries and groups
- `preserved_offsets`: commits of records at given offsets; `batch_copy`: copies batches unchanged
- `exporting`: ranges and results that exports share; `kafka_client`: clients of a running Kafka
"""
