"""Tools for a streaming query's checkpoint: read it, verify it, go back to an earlier batch.

    from sparklog import checkpoint
    checkpoint.history("/data/checkpoint").table()                 # a row per batch
    checkpoint.fork("/data/checkpoint", "/data/try", to=120)       # a query that continues there
    checkpoint.reset("/data/checkpoint", to=120, log="/data/log")  # the same, in place
    checkpoint.changes("/data/checkpoint", operator=0).read_all()  # state changes of each batch
    checkpoint.rewrite("/data/checkpoint", "/data/new", partitions=400)  # the state, changed

Works with checkpoints of Spark's own manager (files) and of sparklog's (records of a log dir). Only
`rewrite`, `erase`, `bootstrap`, `rebuild` and `diff` need a Spark session. `history`, `verify`,
`changes`, `fork` and `archive` also read checkpoints in a bucket.

Operations on a checkpoint:

- `history`: a row per batch; `changes`: the changes of each batch in an operator's state
- `verify`: checks that it is complete; `repair`: removes damaged records
- `fork`, `reset`: a new checkpoint, or the same checkpoint, as of an earlier batch
- `convert`: import_ and export, from files to records and back
- `rewrite`, `erase`, `bootstrap`, `rebuild`, `diff`: change and compare state (sparklog/state)
- `backup/`: archive and restore; `changes` with `change_feed/`

Modules that they use:

- `files`: all files of a checkpoint, whether stored as files or as records; `checkpoint_kind`: the
ways in which a checkpoint is stored; `stored_files`: files in a bucket; `stored_runs`: files of a
checkpoint in runs; `run_writer`: writes a run
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
    from sparklog.checkpoint.checkpoint_kind import CheckpointKind
    from sparklog.checkpoint.convert import Converted, export, import_
    from sparklog.checkpoint.fork import Forked, fork
    from sparklog.checkpoint.history import BatchRow, History, history
    from sparklog.checkpoint.reset import Reset, reset
    from sparklog.checkpoint.verify import CheckpointReport, verify
    from sparklog.state.bootstrap import Bootstrapped, bootstrap
    from sparklog.state.change import RewrittenOperator
    from sparklog.state.comparison import FamilyDifference
    from sparklog.state.diff import Difference, diff
    from sparklog.state.erase import Erased, erase
    from sparklog.state.rebuild import Rebuilt, rebuild
    from sparklog.state.rewrite import Rewritten, rewrite
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "Archived": "sparklog.checkpoint.backup.archiving",
            "BatchRow": "sparklog.checkpoint.history",
            "Bootstrapped": "sparklog.state.bootstrap",
            "CheckpointKind": "sparklog.checkpoint.checkpoint_kind",
            "CheckpointReport": "sparklog.checkpoint.verify",
            "Converted": "sparklog.checkpoint.convert",
            "Difference": "sparklog.state.diff",
            "Erased": "sparklog.state.erase",
            "FamilyDifference": "sparklog.state.comparison",
            "Forked": "sparklog.checkpoint.fork",
            "History": "sparklog.checkpoint.history",
            "Rebuilt": "sparklog.state.rebuild",
            "Reset": "sparklog.checkpoint.reset",
            "Restored": "sparklog.checkpoint.backup.restoring",
            "Rewritten": "sparklog.state.rewrite",
            "RewrittenOperator": "sparklog.state.change",
            "Snapshot": "sparklog.checkpoint.backup.snapshots",
            "archive": "sparklog.checkpoint.backup.archiving",
            "bootstrap": "sparklog.state.bootstrap",
            "changes": "sparklog.checkpoint.changes",
            "diff": "sparklog.state.diff",
            "erase": "sparklog.state.erase",
            "export": "sparklog.checkpoint.convert",
            "fork": "sparklog.checkpoint.fork",
            "history": "sparklog.checkpoint.history",
            "import_": "sparklog.checkpoint.convert",
            "list_points": "sparklog.checkpoint.backup.restoring",
            "rebuild": "sparklog.state.rebuild",
            "reset": "sparklog.checkpoint.reset",
            "restore": "sparklog.checkpoint.backup.restoring",
            "rewrite": "sparklog.state.rewrite",
            "verify": "sparklog.checkpoint.verify",
        },
    )

__all__ = [
    "Archived",
    "BatchRow",
    "Bootstrapped",
    "CheckpointKind",
    "CheckpointReport",
    "Converted",
    "Difference",
    "Erased",
    "FamilyDifference",
    "Forked",
    "History",
    "Rebuilt",
    "Reset",
    "Restored",
    "Rewritten",
    "RewrittenOperator",
    "Snapshot",
    "archive",
    "bootstrap",
    "changes",
    "diff",
    "erase",
    "export",
    "fork",
    "history",
    "import_",
    "list_points",
    "rebuild",
    "reset",
    "restore",
    "rewrite",
    "verify",
]
