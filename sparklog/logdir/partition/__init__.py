"""A partition's directory as its one writer sees it: append, roll, truncate.

- `partition_log`: all of it; `segment`: the active segment; `rolling`: when it is full
- `partition_segments`: the segments as readers see them, without a lock;
  `log_segment_data`: a closed one as a bucket takes it
- `validation`: what an append must be
- `directories`: whether one holds anything yet; its removal
- `truncation`: back to where it was when a step began; `repairs`: what it and recovery do to files
- `segment_swap`: a cleaned segment takes the place of its sources
- `indexes`, `leader_epochs`, `producer_snapshots`, `producer_state_manager`: beside the log
- `batch_epochs`: the leader epochs of the batches, and which of them count
"""
