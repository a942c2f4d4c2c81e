"""Checks of a log's invariants. All modules here only read.

- `log_dir_state`: the log dir's locks, markers, small files; `ledger`: the commits
- `partition`, `segment`, `indexes`, `producers`, `leader_epochs`: the files of a partition
- `appends`: whether batches are those that the ledger recorded
- `offset_checkpoints`, `leftover_files`: other files in log dirs; `tier_verifier`: remote copies;
`remote_storage`: the log dir's metadata of remote copies
- `expectations`: expected offsets
- `findings`: findings and their fixes; `batches`: batch sizes

For a log in a bucket: `store_verifier`, and its parts `store_ledger` (entries, states),
`store_extents` (objects, batches, manifests) and `store_side_objects` (groups, signs of life,
owners).
"""
