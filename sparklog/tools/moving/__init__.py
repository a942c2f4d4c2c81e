"""Topics to and from Kafka, Parquet, Delta and log dirs, with the offsets they have; whole logs.

- `import_kafka`; `export_kafka`, `export_parquet`, `export_delta`, `export_log`
- `to_store`, `to_log_dir`: a whole log, with all that its queries and groups need to go on
- `placing`: commits of records that keep their offsets; `batch_copy`: batches that stay as they
  are; `exporting`: what exports share;
  `kafka`: clients of a live Kafka
"""
