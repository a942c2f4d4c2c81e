"""What a verification found, mended.

- `repair`: carries the fixes out; `derived_files`: indexes and the like, made anew
- `removed_files`: where what is taken out of a log goes
"""
