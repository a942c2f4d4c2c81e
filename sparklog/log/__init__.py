"""A log, whatever its home: reading, writing, groups. Nothing here opens a file or knows a home.

- `log`: `Log`, the public face; `arguments`: checks of what its callers pass
- `admin`, `appending`, `commit`: what changes a log
- `chunk_stager`: rows become the chunks of a commit
- `client_batches`, `producing`: what Kafka's clients sent, checked; many of them in one commit
- `topic_names`: which are sparklog's own, which may be new
- `fetch`, `partition_reader`, `offset_lookup`, `time_lookup`, `aborted_transactions`,
  `last_stable_offset`, `read_retry`: from offsets or times to Arrow batches
- `raw_batches`: from offsets to batches as they lie, for whoever hands bytes on
- `verified_batches`: which of these were checked, and are sent from their file
- `batch_stream`: from offsets to the batches as they lie there
- `batch_windows`, `index_entries`: what a segment's bytes and indexes say
- `batch_figures`, `batch_sample`: how large batches are, what compression makes of them
- `positions`, `truncation_detection`: where a reader stands, and whether that is still true
- `commits_table`, `committed_batches`, `batch_gaps`, `timeline`: what the ledger tells
- `fork_points`: where a log is forked, and why it can't be
- `due_segments`: what retention takes, and why; decides only; `deletion_announcements`
- `dirt`, `record_cleaning`, `cleaned_transactions`, `cleaner_options`: compaction, in any home
- `record_erasure`: records that a predicate chooses, taken out of a segment's windows
- `group_lag`, `group_progress`, `reader_reset`: readers that are registered
- `producer_state`, `producer_state_loading`: idempotent and transactional producers
"""
