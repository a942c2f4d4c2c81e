"""Looking through a log: bounded in bytes, records and time, whatever the log holds. No HTTP.

- `limits`: what one look may cost; `bounds`: where it begins and ends, as people write it
- `chunks`: some record batches, forwards or backwards, as Arrow; `filters`: which of them are meant
- `looking`: records of a topic's partitions, in the order of time, and where to go on; `cursors`
- `shown_records`: what was found, as Python values
- `values`: bytes as people read them: JSON, text, hex, and what is known of Avro and Protobuf
- `figures`: topics, their sizes, rates and lags
"""
