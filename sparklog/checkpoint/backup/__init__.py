"""Backups of checkpoints: files named by their content, and a manifest for each point.

- `archiving`, `restoring`: write a point of a repository, and read one back
- `repository`: objects, their names and keys; `snapshots`: the manifests
- `upload`: uploads the files that the repository lacks
- `forked_log`, `archived_log`: a log in a store, as the content of a point and as its restore
"""
