"""What must hold in a log dir, one module a noun. Everything here only reads.

- `log_dir_state`: the log dir as a whole: locks, markers, small files; `ledger`: commits
- `partition`, `segment`, `indexes`, `producers`, `leader_epochs`: a partition's own files
- `misplaced_segments`: copies of segments under other base offsets
- `appends`: whether the batches are those that the ledger says were appended
- `offset_checkpoints`, `leftover_files`: files beside them; `tier_verifier`: remote copies;
  `remote_storage`: what the log dir knows of them
- `expectations`, `segment_sizes`: what the ledger says that must be there
- `findings`: what was found, and how it can be mended; `batches`: how large they are

Of a log in a store: `store_verifier`, its parts `store_ledger` (entries, states), `store_extents`
(objects, batches, manifests) and `store_side_objects` (groups, signs of life, owners).
"""
