"""A log whose home is an object store: no log dir, no lock, writers and readers on any host.

Everything hangs on create-if-absent, and on one rule: no name ever gets a second meaning.

- `entries`, `state`, `extents`: what the ledger says, and what it folds to
- `home`: opening a log; `home_object`: what makes a place one;
  `capability_check`: whether a store is fit for that
- `commit_log`: changes; `entry_building`, `entry_creation`: one entry from decision to object;
  `commit_outcome`: commits whose outcome is unknown
- `ledger`: entries by number, and the head, by which all of it is known; `process_lock`
  `ledger_evidence`: objects that prove that a missing entry existed;
  `ledger_repair`: a log without its lost entries
- `view`: what readers see; `plan`: what a task reads with; `segments`: extents as segments
- `checksums`: the CRC-32C of each extent, which binds its bytes to the entry
- `extent_objects`, `extent_logs`: extents' bytes; `entry_cache`: entries with inline data;
  `numbered_batches`: batches with offsets and epochs;
  `extent_tables`: where the pieces of a large commit lie
- `staging`: rows become objects, in tasks; `staged_chunks`: what several tasks reported;
  `placement`: where a commit's chunks lie; `object_keys`: encryption of all that;
  `lost_attempts`: what killed tasks staged
- `merging`: extents become segments; `merge_plan`: which; `merge_source`: out of what;
  `segment_ids`: what a segment's id tells; `retention`: log starts rise; `garbage`: what goes;
  `backpressure`: writers merge where no service does
- `rounds`: the service's work, step by step; `cleaning`: compaction;
  `compacted_partitions`: how dirty they are; `damaged_partitions`;
  `erasure`: records that a predicate chooses go; `erasure_notes`: what isn't complete
- `lease`: one service at a time; `service_log`: how it changes the log; `options`: how often;
  `endpoint_lease`: one endpoint at a time that coordinates consumer groups
- `state_objects`: states as objects, which spare reading the whole ledger
- `groups`: registered readers and their positions
- `contention`: how writers get out of each other's way
- `missing_objects`: objects that the state names and the store lacks
- `segment_healing`: damaged segments are written again from what they were merged from
- `quarantine`: copies of objects that a repair replaces or removes
- `names`: names of the objects below the home
- `log_creation`: a log made of another one; `import_objects`: how it comes to be, all or nothing;
  `tier_import`: of a tier; `forking`, `fork_point`, `fork_copies`: as a fork
"""
