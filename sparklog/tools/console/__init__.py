"""Records from a log as text, and from files into a log: consume and produce.

- `consuming`: selects records; `formatting`: record batches as text, JSON lines, hex or raw values
- `producing`: appends record batches to a topic; `input_files`: reads files and pipes
- `input_formats`: lines, JSON, CSV and Parquet as record batches
"""
