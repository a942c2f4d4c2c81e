"""Kafka's byte layouts: bytes in, values out. No files, no clock. Layouts: see README.md.

- `batch`, `control`, `legacy`, `scan`: batch headers; markers; old magics; scanning batches
- `records`, `rows`, `columns`, `sparse_records`: Arrow columns to batches
- `decoder`, `buffers`: batches to Arrow columns
- `metadata_records`: metadata records of a KRaft cluster
- `compression`, `partitioner`: codecs; the partition of a key
- `index`, `checkpoint_files`, `producer_snapshot`, `names`: the files beside a log
- `bit_correction`: corrects a flipped bit by the CRC
- `batch_cutting`: restricts a batch to a range of offsets
- `compaction`: retains only the newest record of each key
- `erasure`: removes the records that a predicate selects
- `kernel`, `framer`, `parser`, `offset_map`, `record_filter`, `state_entries`: the compiled loops
"""
