"""Upload closed segments to the bucket, and delete copies from the bucket.

- `plan`: which segments to copy, and which copies have expired
- `remote_storage_manager`: `SegmentStore` of a bucket: uploads and deletes logs and manifests
- `segment_objects`: checks and indexes a log during its upload, and builds the manifest
- `rewritten_log`: a rewritten segment in a temporary file, to be uploaded
- `content_check`: compares a copy with its checksums, and records copies to replace
- `orphans`: objects without metadata
"""
