"""Records and statistics of a log for people, limited in bytes, records and time. No HTTP.

- `limits`: limits of one request
- `record_range`: records of a partition from an offset or time on; `chunks`: record batches as
  Arrow columns; `record_previews`: records as Python values
- `values`: bytes as JSON, text or hex, with schema ids of Avro and Protobuf
- `figures`: topics with sizes, rates and lags
"""
