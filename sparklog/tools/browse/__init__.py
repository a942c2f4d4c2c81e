"""Records and figures of a log for people, bounded in bytes, records and time. No HTTP.

- `limits`: what one request may cost
- `record_range`: records of a partition from an offset or a time on; `chunks`: some record batches
  as Arrow; `record_previews`: records as Python values
- `values`: bytes as people read them: JSON, text, hex, and what is known of Avro and Protobuf
- `figures`: topics, their sizes, rates and lags
"""
