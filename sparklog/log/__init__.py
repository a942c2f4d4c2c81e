"""The engine of a log: reading, writing, readers.

The engine opens no files and does not depend on a home.

- `log`: `Log`, the public API; `arguments`: checks of its arguments
- `admin`, `appending`, `commit`: changes of a log
- `chunk_stager`: turns rows into the chunks of a commit
- `client_batches`, `producing`: validate the batches of Kafka producers; commit many at once
- `topic_names`: internal and reserved topics, ids of new topics
- `listed_view`: the part of a reader's view that all homes share
- `arrow_reads`, `partition_reader`, `offset_lookup`, `time_lookup`, `aborted_transactions`,
  `read_retry`: read offsets or times as Arrow batches
- `raw_batches`: read offsets as undecoded record batches, for Kafka's Fetch and for copies
- `verified_batches`: batches that passed their CRC and can be sent from their file
- `batch_windows`, `index_entries`: read the bytes and the indexes of a segment
- `batch_figures`, `batch_sample`: batch sizes and compression rates
- `positions`, `truncation_detection`: positions of readers, and whether they are still valid
- `commits_table`, `timeline`: queries of the ledger
- `fork_points`: where a log can be forked; `copied_log`: rules for a log that is copied from
  another log
- `rounds`: the service's round, as far as all homes share it
- `due_segments`: segments that retention deletes; `deletion_announcements`: warns before
- `dirty_ratio`, `record_cleaning`, `cleaned_transactions`, `cleaner_options`: compaction
- `erasure`: erases records of a topic in any home; `record_erasure`: removes the records that a
  predicate selects
- `group_lag`, `group_progress`, `reader_reset`: registered readers
- `producer_state`, `producer_state_loading`: idempotent and transactional producers
"""
