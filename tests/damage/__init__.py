"""Tables of damages: every kind of file or object, damaged in every way, seen by every command.

- `damages`: how a file is damaged: missing, empty, a flipped bit, truncated, ...
- `model`: the words of a table, and what a home provides
- `actions`: the commands that are run on a damaged log: open, read, write, verify, ...
- `compare`: what a log returns, against what the undamaged log returns
- `promises`: what each command that a message quotes must achieve
- `judge`: one damaged log through all actions, and the rules that no row may break
- `table`: the expected verdicts, kept as data in `expected/<home>.txt`
- `checks`: a table's rows, run and compared; called by `test_tables` for each home
- `bucket`: the home in an object store
- `log_dir`, `killed_log_dir`, `tier`: the homes in log dirs
- `checkpoint`: a log-backed checkpoint, which has commands of its own
- `stored_checkpoint`: a checkpoint in runs, in an object store

A home is one module with a class that satisfies `model.Home`: it builds a small log that holds
every kind of file, and lays out copies of it. `python -m tests.damage --write bucket` writes the
expected verdicts again after a change. It never adds a row's broken rule by itself: a new one is a
regression. `--accept-wrong` adds it, for a table that is new.
"""
