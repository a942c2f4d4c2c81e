"""Decoders for the files that Spark writes into a checkpoint.

- `metadata_logs`: plans and commits of batches; `file_sink_log`, `checksums`
- `state_stores`, `state_files`, `state_changelog`, `state_rows`, `state_schema`, `unsafe_row`,
  `lzf`
"""
