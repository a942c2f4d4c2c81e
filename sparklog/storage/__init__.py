"""Protocols that every home of a log implements, and the types that they exchange.

This package opens no file, calls no object store and takes no lock.

- `home`: a handle on a log in its home, which gives access to all other protocols
- `view`: topics, offsets and segments, as readers see them; `segments`: the segments of a
  partition
- `segment_store`: writes and deletes closed segments
- `groups`: registered readers and their committed offsets; `group_store`: how a home stores them;
  `commit_rate`: how regularly they commit; `group_members`: Kafka clients that are members of
  consumer groups
- `commits`: the commit log, which orders all changes; `lease`: the right to run the service
- `upkeep`: a home's background work, as the service calls it; `round_report`: the results of a
  round; `erasure_report`: the results of an erasure; `unfinished_erasure`: an erasure that is not
  complete
- `staging`: turns rows into the chunks of a commit; `chunk_table`: many chunks as columns;
  `row_faults`: reasons why rows are rejected
- `ledger_records`: the records of the commit ledger, and their JSON; `topic_state`,
  `deleted_topic`: parts of their state
- `log_state`: the state of a log, folded from the ledger
- `committed_appends`: compares segments with the appends that the ledger recorded
- `leader_epochs`: leader epochs and the offsets at which they start
- `offset_ranges`: sets of offsets of a partition
- `query_origin`: the Spark query of a writer, and the offsets that the query had read
- `stored_json`: small readable documents with a checksum; parses stored JSON of any depth without
  exhausting the stack; rejects files of a newer sparklog
"""
