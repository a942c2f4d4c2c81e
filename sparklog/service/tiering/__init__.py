"""The remote side of a log, round by round. Source: RemoteLogManager (Kafka 4.1).

- `remote_log_manager`: the rounds; it checks that the bucket is the right one, and whose it is
- `copy_task`: closed segments get their copies; `expiration_task`: what has expired goes, as do
  copies of deleted topics, and objects that belong to no copy
- `erasure_task`: records that a predicate chooses go from a partition's copies
- `remote_log`: what those know together of a log's remote segments
- `ledger_appends`: what the ledger recorded for the segments that are copied
- `copy_confirmation`: checks that a copy is whole before its local segment is deleted
"""
