"""Records out of a log as text, and into it from files: consume and produce.

- `consuming`: which records; `formatting`: record batches as text, JSON lines, hex, raw values
- `producing`: record batches into a topic; `input_files`: the bytes of a file or a pipe;
  `input_formats`: lines, JSON, CSV and Parquet as record batches
"""
