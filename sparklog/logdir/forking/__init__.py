"""`fork`: a new log as an old one stood at one of its commits.

- `fork`: all of it; `fork_point`: the place in the ledger
- `partition_fork`: one partition, by links and one cut copy
"""
