"""Recovery of a log after a crash.

- `log_recovery`: the lock's last holder died: undo or redo its step, or recover all partitions
- `redo`: the effects of a ledger record, applied again
- `partition_recovery`: checks everything below a partition's end, removes everything after it
- `log_loader`: loads a partition that a broker wrote, by Kafka's rules
- `single_partition`: recovers a single partition; `segment_rebuild`, `leftover_files`: shared
- `returned_partitions`: recovers offline partitions whose files are back
"""
