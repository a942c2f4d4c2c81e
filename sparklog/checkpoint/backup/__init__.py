"""Archives of checkpoints: a repository of blocks, and snapshots that name them.

- `archiving`, `restoring`, `pruning`; `repository`, `snapshots`
- `upload`, `segment_pieces`: what is new goes; `operation_marks`: archiving and pruning keep apart
"""
