"""State changes of committed batches, decoded as by Spark's `readChangeFeed`.

- `change_files`: the change file of each batch and partition of a state store
- `change_reader`: decodes a change file to Arrow
"""
