"""Closed segments in object storage: copied, expired, read back. Source: KIP-405.

- `layout`: what lies in the bucket; `object_store`: buckets, behind one protocol
- `remote_segment`: what is known of a copy; `remote_log_metadata`: of all copies, as a topic
- `copying`: to the bucket, and out of it; `reading`: remote segments; `encryption` of copies
- `archive`: a bucket alone, read as a log; `restoring`: made a log dir again
- `settings`: where a log's copies go; `status`: what lies where
- `target`: `open_store`, the store of a URL; `keyring`: master keys of encrypted copies

The only place that knows fsspec. PROTOCOL.md beside this file says what lies in the bucket, in
which order it is written and removed, and why a reader never sees half of it.
"""
