"""Topics to and from Kafka, Parquet, Delta and log dirs, with the offsets they have.

- `import_kafka`; `export_kafka`, `export_parquet`, `export_delta`, `export_log`
- `placing`: commits of records that keep their offsets; `exporting`: what exports share;
  `kafka`: clients of a live Kafka
"""
