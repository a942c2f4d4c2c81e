"""What a verification found, mended.

- `log_repair`: carries the fixes out; `derived_files`: indexes and the like, made anew
- `store_repair`: the same for a log in a store; `store_segments`: what needs it open for writing
"""
