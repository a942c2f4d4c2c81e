"""For tests of sparklog, and of homes, stores and file systems that others write.

- `contracts`: of `FileSystem` and `Store`; `home_contract`, `commits_contract`, `groups_contract`,
  `lease_contract`, `view_contract`, `segments_contract`, `segment_store_contract`: of a log's home;
  `arguments_contract`: how a log of any home refuses invalid arguments
- `crashfs`: a file system that loses power, on `disk`; `faults`: what it does on purpose;
  `crashes`: every crash of a piece of work
- `faultstore`: an object store that fails as real ones do
- `schedules`: processes that take turns, by a seed; `scheduled_store`: a store that they share,
  whose answers go astray
- `strategies`: Hypothesis strategies of tables, topics, configs; `trees`: whole directories
"""
