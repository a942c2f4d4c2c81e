"""Closed segments to the bucket, and out of it.

- `plan`: what is to be copied, what has expired; `segment_copy`: one segment
- `deletion`: copies that go; `orphans`: objects that nobody knows
"""
