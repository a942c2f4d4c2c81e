"""Reading remote segments.

- `tiered_segments`: a log dir's local and remote segments, merged by metadata
- `partition_copies`, `remote_segment_log`: a partition's copies as its segments
- `remote_objects`: manifests, and ranges of logs, opened according to the options
- `range_fetcher`, `block_cache`, `disk_blocks`
- `store_retry`: how long a reader waits for an unavailable store
- `options`, `meters`
"""
