"""Repairs of the findings of a verification.

- `log_repair`: carries out the fixes; `derived_files`: rebuilds indexes and other derived files
- `ledger_repair`: the commit ledger; `ledger_salvage`: finds the surviving records,
`ledger_state`: rebuilds the state from them and from other files
- `store_repair`: a log in a bucket
"""
