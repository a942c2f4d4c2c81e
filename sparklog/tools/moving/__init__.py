"""Import from Kafka, and export to Kafka, log dirs and stores, of topics and of whole logs.

- `import_kafka`; `export_kafka`, `export_log`
- `to_store`, `to_log_dir`: a whole log, with all that its queries and groups need to go on
- `preserved_offsets`: commits of records at given offsets; `batch_copy`: batches that stay as they
  are; `exporting`: what exports share;
  `kafka`: clients of a live Kafka
"""
