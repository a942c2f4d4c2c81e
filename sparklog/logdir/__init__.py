"""The home of a log in directories of one host: what PROTOCOL.md says, step by step.

- `home`: from a path to an open `Log` on log dirs
- `commit_log`, `lock`, `intent`, `ledger`: the lock, the step under way, the commit point
- `broker_lockout`, `meta_properties`: keeping Kafka's brokers out; the clean shutdown marker
- `cluster_metadata`: what a broker's metadata log says of topics
- `log_manager`: the partition logs that a writer has open, and what it knows of them
- `opening`, `adoption`, `closing`: from a path to an open commit log and back;
  `uncommitted_tails`: what lies behind its end, which goes to `quarantined_files`
- `view`, `ledger_reader`: what readers see of it, without a lock; `detection`: whether a path
  is a log dir
- `partition/`: a partition's log as its one writer sees it
- `recovery/`: after a crash: redo, truncation, rebuild
- `retention/`, `cleaning/`, `housekeeping`, `deleted_files`: what goes
- `forking/`: a new log as an old one stood at a commit
- `staged_directory`: directories that are made beside their names, and renamed when whole
- `partition_move`: moves a partition to another log dir, while nothing else writes to the log
- `log_dirs`, `log_dir_identity`, `offline_partitions`, `unclean_election`, `free_space`: disks
  that vanish, return, are replaced, fill up
- `high_watermarks`, `offset_checkpoints`, `topics_file` (`cached_topics`), `group_offsets`: small
  files
- `service_lease`: one service at a time; `endpoint_lock`: one coordinator of Kafka clients' groups
- `staging`, `chunk_files`: chunks that tasks stage as files, which a commit takes in
  (`chunk_appends`); `log_dir_check`: whether an executor sees the driver's log dir
- `state_copy`: a second copy of the ledger's state, for repairs
- `ledger_end`: where the ledger ends, and whether it can be opened; `repair_advice`: the advice of
  errors about files that `sparklog verify --repair` rebuilds
- `erasures_file`: that records were erased, for readers
- `paths`, `segment_files`, `segment_listing`: names and listings of log dirs and segments;
  `file_sync`: fsync errors
- `meters`: what a writer counts
"""
