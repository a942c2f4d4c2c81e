"""A log in a bucket: no log dir and no lock; writers and readers on any host.

Correctness depends only on create-if-absent, and on the rule that no object name is ever reused
with another meaning.

- `entries`, `state`, `extents`: content of ledger entries, and the state after folding them
- `home`: opening a log; `home_object`: the object that marks a log's prefix; `capability_check`:
  checks that a store is suitable
- `commit_log`: changes; `entry_building`, `entry_creation`: an entry from decision to object, with
  pauses between competing writers
- `ledger`: entries by number, and the head; `process_lock`: a lock that a fork releases;
  `ledger_evidence`: objects that prove that a missing entry existed; `ledger_repair`: a log without
  its lost entries
- `view`: the readers' view; `plan`: read plans of tasks; `segments`: extents as segments
- `checksums`: the CRC-32C of each extent, which binds its bytes to the entry
- `extent_objects`, `extent_logs`: reading extents; `entry_cache`: entries with inline data;
  `numbered_batches`: batches with offsets and epochs; `extent_tables`: locations of a large
  commit's chunks
- `staging`: tasks write rows to objects; `staged_chunks`: the reports of several tasks,
  and objects that killed tasks staged; `placement`: locations of a commit's chunks; `object_keys`:
  their encryption
- `merging`: extents become segments; `merge_plan`: the choice of extents; `merge_source`: reading
  them; `retention`: raises log starts; `garbage`: deletes objects;
  `backpressure`: merges by writers if there is no service
- `upkeep`: the service's work; `cleaning`: compaction; `compacted_partitions`: dirty ratios;
  `erasure`: removes records by a predicate; `erasure_notes`: incomplete erasures
- `lease`: ensures that only one service runs, and that only one endpoint coordinates consumer
  groups; `service_log`: how a service changes the log; `options`: its options
- `state_objects`: states as objects, so that a reader need not read the entire ledger
- `groups`: registered readers and their positions
- `missing_objects`: objects of the state that the store lacks
- `segment_healing`: rewrites damaged segments from the sources of their merge
- `quarantine`: copies of objects that a repair replaces or removes
- `names`: object names and segment ids
- `log_creation`: creates a log from another log; `import_objects`: the place of a new log, and its
  atomic creation; `tier_import`: from remote segments; `forking`, `fork_point`, `fork_copies`: as a
  fork
"""
