"""Backups of checkpoints, in the way of restic: a repository of blocks, and snapshots naming them.

- `archiving`, `restoring`, `pruning`: what is done to a repository
- `repository`: objects, blocks and keys; `snapshots`: which files and blocks each one has
- `upload`: what is new is uploaded; `segment_blocks`: how segments are split into blocks
- `forked_log`, `archived_log`: a log in a store, as what goes into a snapshot and comes out of it
- `repository_locks`: archiving and pruning exclude one another
"""
