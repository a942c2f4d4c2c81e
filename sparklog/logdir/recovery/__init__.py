"""Recovery of a log after a crash.

- `log_recovery`: after the death of the lock's holder: undo, redo, or recover all partitions
- `redo`: the effects of a ledger record, applied again
- `partition_recovery`: checks all data below a partition's end, removes all data after the end
- `log_loader`: loads a partition that a broker wrote, by Kafka's rules
- `single_partition`: recovers a single partition; `segment_rebuild`, `leftover_files`: shared
- `returned_partitions`: recovers offline partitions after their files are back
"""
