"""Decoders for the files that Spark writes into a checkpoint.

- `offset_log`, `commit_log`, `file_source_log`, `file_sink_log`, `checksums`
- `state_stores`, `state_files`, `state_changelog`, `state_rows`, `state_schema`, `unsafe_row`,
  `lzf`
"""
