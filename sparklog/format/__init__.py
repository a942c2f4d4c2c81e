"""Kafka's byte layouts: bytes in, values out. No files, no clock. README.md has the layouts.

- `batch`, `control`, `legacy`, `scan`: headers of batches; markers; old magics; walking them
- `records`, `rows`, `columns`, `sparse_records`: Arrow columns to batches
- `decoder`, `buffers`: batches to Arrow columns
- `metadata_records`: of a KRaft cluster's metadata
- `compression`, `partitioner`: codecs; which partition a key goes to
- `index`, `checkpoint_files`, `producer_snapshot`, `names`: the files beside a log
- `bit_correction`: a flipped bit, found by the CRC
- `batch_cutting`: a batch that is left with fewer records
- `compaction`: what stays of batches when only the newest record of a key does
- `erasure`: batches less the records that a predicate chooses
- `kernel`, `framer`, `parser`, `offset_map`, `record_filter`, `state_entries`: the compiled loops
"""
