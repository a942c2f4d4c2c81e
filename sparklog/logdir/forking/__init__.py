"""`fork`: creates a new log from the state of a log at a commit.

- `fork`: the entry point; `fork_point`: the position in the ledger
- `partition_fork`: links and copies of a partition
"""
