"""Backups of checkpoints: files named by their content, and a manifest for each point.

- `archiving`, `restoring`: write a point to a repository, and restore a point
- `repository`: objects, their names and keys; `snapshots`: the manifests
- `upload`: uploads the files that the repository lacks
- `forked_log`, `archived_log`: a log in a bucket, as the source of a point and of its restore
"""
