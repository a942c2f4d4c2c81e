"""What a log's home is, as protocols and the types that they exchange. No files, no store, no lock.

- `home`: what a log asks of its home, which has all of these
- `view`: what a reader sees of a log; `segments`: the segments of a partition; `local_files`:
  those that are files of this host
- `segment_store`: who makes and removes closed segments
- `groups`: registered readers, and how far they are; `commit_rate`: how steadily; `group_members`: Kafka
  clients at work
- `commits`: a log's changes in one order; `lease`: one service at a time
- `upkeep`: a home's background work, as a service asks for it; `round_report`: what it did;
  `erasure_report`: what an erasure did; `unfinished_erasure`: that it isn't complete
- `moves`: partitions that are to move between log dirs
- `staging`: rows become the chunks of a commit; `chunk_table`: many of them as columns;
  `row_faults`: why rows are refused
- `ledger_records`: the records of the commit ledger, and their form on disk; `topic_state`,
  `deleted_topic`, `lost_commits`
- `log_state`: what the ledger says, folded
- `committed_appends`: compares segments with the appends that the ledger recorded
- `leader_epochs`: which epoch began where
- `offset_ranges`: sets of offsets of a partition
- `query_origin`: which query a writer was, and how far it had read;
  `source_offsets`: a source's offsets as JSON
- `checksummed_json`: small documents that a person can read and a checksum guards;
  `bounded_json`: JSON of storage, however deeply it is nested;
  `format_version`: what a newer sparklog wrote is refused
"""
