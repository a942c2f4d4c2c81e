"""Closed segments to the bucket, and out of it.

- `plan`: what is to be copied, what has expired
- `remote_storage_manager`: `SegmentStore` of a bucket: logs and manifests, put and deleted
- `segment_objects`: a log that is checked and indexed while it is put, and its manifest
- `rewritten_log`: a segment that was written anew, on its way there
- `content_check`: a copy compared with its checksums; `damaged_copies`: those that must be replaced
- `deletion`: copies that go, and what is told of it; `orphans`: objects that nobody knows;
  `older_versions`: what a bucket keeps of others
"""
