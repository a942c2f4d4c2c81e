"""Tools for a streaming query's checkpoint: read it, verify it, go back to an earlier batch.

    from sparklog import checkpoint
    checkpoint.history("/data/checkpoint").table()                 # a row per batch
    checkpoint.fork("/data/checkpoint", "/data/try", to=120)       # a query that continues there
    checkpoint.reset("/data/checkpoint", to=120, log="/data/log")  # the same, in place
    checkpoint.changes("/data/checkpoint", operator=0).read_all()  # state changes of each batch

Works with checkpoints of Spark's own manager (files) and of sparklog's (records of a log dir). Does
not start Spark. `history`, `verify`, `changes`, `fork` and `archive` also read checkpoints in a
bucket.

Operations on a checkpoint:

- `history`: a row per batch; `changes`: the changes of each batch in an operator's state
- `verify`: checks that it is complete; `repair`: removes damaged records
- `fork`, `reset`: a new checkpoint, or the same checkpoint, as of an earlier batch
- `convert`: import_ and export, from files to records and back
- `backup/`: archive and restore; `changes` with `change_feed/`

Modules that they use:

- `files`: all files of a checkpoint, whether stored as files or as records; `stored_files`: files
in a bucket; `stored_runs`: files of a checkpoint in runs; `run_writer`: writes a run
- `stored_copies`: forks and resets in runs; `stored_conversion`: converts files into runs and back
- `log_backed/`: partitions, records and locks of a log-backed checkpoint
- `spark_files/`: offset log, commit log and state files, as Spark writes them
- `batches`: plans, commits and state of each batch, and whether the query can go back to it;
`rollback_request`: a request to go back to a batch, by number, time or offsets
- `truncation`: which files to drop when going back; `truncated_copy`: writes the others
- `query_sink`: the query's sink; `file_sink_cut`: truncates the log of Spark's file sink
- `staged_checkpoint`: a checkpoint built beside its final name; `unfinished_reset`: completes a
  reset
- `running_query`: detects a running query
"""

from typing import TYPE_CHECKING

from sparklog.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from sparklog.checkpoint.backup.archiving import Archived, archive
    from sparklog.checkpoint.backup.restoring import Restored, list_points, restore
    from sparklog.checkpoint.backup.snapshots import Snapshot
    from sparklog.checkpoint.changes import changes
    from sparklog.checkpoint.convert import Converted, export, import_
    from sparklog.checkpoint.fork import Forked, fork
    from sparklog.checkpoint.history import BatchRow, History, history
    from sparklog.checkpoint.reset import Reset, reset
    from sparklog.checkpoint.verify import CheckpointReport, verify
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "Archived": "sparklog.checkpoint.backup.archiving",
            "BatchRow": "sparklog.checkpoint.history",
            "CheckpointReport": "sparklog.checkpoint.verify",
            "Converted": "sparklog.checkpoint.convert",
            "Forked": "sparklog.checkpoint.fork",
            "History": "sparklog.checkpoint.history",
            "Reset": "sparklog.checkpoint.reset",
            "Restored": "sparklog.checkpoint.backup.restoring",
            "Snapshot": "sparklog.checkpoint.backup.snapshots",
            "archive": "sparklog.checkpoint.backup.archiving",
            "changes": "sparklog.checkpoint.changes",
            "export": "sparklog.checkpoint.convert",
            "fork": "sparklog.checkpoint.fork",
            "history": "sparklog.checkpoint.history",
            "import_": "sparklog.checkpoint.convert",
            "list_points": "sparklog.checkpoint.backup.restoring",
            "reset": "sparklog.checkpoint.reset",
            "restore": "sparklog.checkpoint.backup.restoring",
            "verify": "sparklog.checkpoint.verify",
        },
    )

__all__ = [
    "Archived",
    "BatchRow",
    "CheckpointReport",
    "Converted",
    "Forked",
    "History",
    "Reset",
    "Restored",
    "Snapshot",
    "archive",
    "changes",
    "export",
    "fork",
    "history",
    "import_",
    "list_points",
    "reset",
    "restore",
    "verify",
]
