"""Logs in log dirs of a host, as PROTOCOL.md specifies.

- `home`: opens a `Log` on log dirs
- `commit_log`, `lock`, `intent`, `ledger`: the write lock, the step in progress, the commit point
- `broker_lockout`, `meta_properties`: keep Kafka's brokers out; the clean shutdown marker
- `cluster_metadata`: topics in a broker's metadata log
- `log_manager`, `partition_writers`: the log's state, and the partition logs that a writer has
  open; `partition_creation`: directories of new and restored partitions
- `opening`, `adoption`, `closing`: open and close the commit log; `uncommitted_tails`: bytes after
  its end, which are moved to `quarantined_files`
- `view`, `ledger_reader`: the readers' view, without a lock; `detection`: whether a path is a log
  dir
- `partition/`: a partition's log, for its writer
- `recovery/`: recovery after a crash: redo, truncation, rebuild
- `retention/`, `cleaning/`, `housekeeping`, `deleted_files`: deletion
- `forking/`: creates a new log from the state of a log at a commit
- `new_log_dirs`: the log dirs of a log that is copied from another log; `staged_directory`:
  directories that are created under a temporary name and renamed when complete
- `partition_move`: moves a partition to another log dir, while no other session writes to the log
- `log_dirs`, `log_dir_identity`, `offline_partitions`, `unclean_election`, `free_space`: disks that
  disappear, return, are replaced, or are full
- `high_watermarks`, `offset_checkpoints`, `topics_file`, `group_offsets`: small files
- `lease`: the leases of the service and of the endpoint that coordinates consumer groups
- `staging`, `chunk_files`: chunks that tasks stage as files, and that a commit appends
  (`chunk_appends`); `log_dir_check`: whether an executor sees the driver's log dir
- `state_copy`: a second copy of the ledger's state, for repairs
- `ledger_end`: the ledger's end, and whether the ledger can be opened; `repair_advice`: the advice
  in errors about files that `sparklog verify --repair` rebuilds
- `erasures_file`: records that an erasure took place, for readers
- `paths`, `segment_files`: names and listings of log dirs and segments; `file_sync`: fsync errors
- `meters`: a writer's metrics
"""
