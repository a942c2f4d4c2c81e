"""Closed segments in object storage: copied, expired, read back. Source: KIP-405.

The only place that knows fsspec. PROTOCOL.md beside this file says what lies in the bucket, in
which order it is written and removed, and why a reader never sees half of it.
"""
