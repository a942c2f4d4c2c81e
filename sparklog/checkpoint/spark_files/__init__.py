"""Files as Spark writes them into a checkpoint, decoded.

- `offset_log`, `commit_log`, `file_source_log`, `file_sink_log`, `checksums`
- `state_stores`, `state_files`, `state_changelog`, `state_rows`, `state_schema`, `unsafe_row`,
  `lzf`
"""
