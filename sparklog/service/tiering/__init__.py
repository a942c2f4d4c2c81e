"""The remote part of the background work. Source: RemoteLogManager (Kafka 4.1).

- `remote_log_manager`: the rounds; also checks that the bucket belongs to this log
- `copy_task`: copies closed segments; `expiration_task`: deletes expired copies, copies of deleted
  topics, and orphaned objects
- `erasure_task`: removes selected records from a partition's copies
- `remote_log`: metadata of a log's remote segments, shared by these modules
- `ledger_appends`: appends that the ledger recorded for the segments to copy
- `copy_confirmation`: checks that a copy is complete before its local segment is deleted
"""
