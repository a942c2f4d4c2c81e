"""Remote segments, read.

- `opening`: objects, with caches, keys and patience as options ask for
- `tiered_segments`: a log dir's segments and those that are remote only, merged by metadata
- `partition_copies`, `remote_segment_log`: a partition's copies as its segments
- `remote_objects`: manifests, and logs by ranges; `range_fetcher`, `block_cache`, `disk_blocks`
- `store_retry`: how long a reader waits for a store that is away
- `options`, `meters`
"""
