"""State changes of committed batches, decoded: what Spark's `readChangeFeed` reads.

- `change_files`: the file of each batch and partition of a state store
- `change_reader`: such a file's entries as Arrow
"""
