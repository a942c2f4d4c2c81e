"""What a verification found, mended.

- `log_repair`: carries the fixes out; `derived_files`: indexes and the like, made anew
- `ledger_repair`: the commit ledger; `ledger_salvage`: the records that survive in it,
  `ledger_state`: the state that follows from them and from other files
- `store_repair`: the same for a log in a store; `store_segments`: what needs it open for writing
"""
