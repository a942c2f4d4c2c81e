"""A partition's directory as its one writer sees it: append, roll, truncate.

- `partition_log`: all of it; `segment`: the active segment; `rolling`: when it is full
- `validation`: what an append must be; `unflushed`: what is written and not yet durable
- `indexes`, `leader_epochs`, `producer_snapshots`, `producer_state_manager`: beside the log
"""
