"""Remote segments, read.

- `remote_objects`: manifests, and logs by ranges; `range_fetcher`, `block_cache`, `disk_blocks`
- `store_retry`: how long a reader waits for a store that is away
- `overlay`, `directory`, `remote_file`, `readonly`, `opening`: shown as files of a log dir
- `options`, `meters`
"""
