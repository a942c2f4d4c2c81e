"""A partition's directory, for the writer: append, roll, truncate.

- `partition_log`: the log; `segment`: the active segment; `rolling`: when a segment is full
- `partition_segments`: the segments for readers, without a lock; `log_segment_data`: a closed
  segment for a copy to a bucket
- `validation`: checks of batches to append
- `directories`: checks whether a directory is empty, and removes directories
- `truncation`: undoes a step; `repairs`: how truncation and recovery change files
- `segment_swap`: replaces segments by a cleaned segment
- `indexes`, `leader_epochs`, `producer_snapshots`, `producer_state_manager`: files beside the log
- `batch_epochs`: the leader epochs of the batches, and which epochs are valid
"""
