"""What makes a log whole again after a crash.

- `log_recovery`: the lock's last holder died: undo or redo its step, or recover all partitions
- `redo`: what follows a ledger record, done again
- `partition_recovery`: below its end everything must hold, behind it all goes
- `log_loader`: a partition that a broker wrote, loaded by Kafka's rules
- `single_partition`: the same of one partition alone; `segment_rebuild`, `leftover_files`: shared
- `returned_partitions`: what was offline and has its files again
"""
