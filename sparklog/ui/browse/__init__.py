"""Reads records and statistics of a log for display, with limits on bytes, records and time.

- `limits`: limits of one request
- `record_range`: records of a partition from an offset or time; `chunks`: record batches as
  Arrow columns; `record_previews`: records as Python values
- `values`: bytes as JSON, text or hex, with schema ids of Avro and Protobuf
- `figures`: sizes, rates and lags of topics
"""
