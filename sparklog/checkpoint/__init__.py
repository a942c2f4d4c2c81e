"""A streaming query's checkpoint as data: read it, check it, go back to one of its batches.

    from sparklog import checkpoint
    checkpoint.history("/data/checkpoint").table()                 # a row for each batch
    checkpoint.fork("/data/checkpoint", "/data/try", to=120)       # a query that goes on from there
    checkpoint.reset("/data/checkpoint", to=120, log="/data/log")  # the same, in place
    checkpoint.changes("/data/checkpoint", operator=0).read_all()  # what each batch did to state

For checkpoints of Spark's own manager (files) and of sparklog's (records of a log dir). Without
Spark: nothing here starts it.

What is done to a checkpoint:

- `history`: a row for each batch; `changes`: what each batch changed in an operator's state
- `verify`: is it whole? `repair`: damaged records are taken out
- `fork`, `reset`: a new checkpoint, or the same, as it was behind one of its batches
- `convert`: import_ and export, from files to records and back
- `backup/`: archive and restore; `changes` with `change_feed/`

What they stand on:

- `files`: all files of a checkpoint, whether they are files or records
- `log_backed/`: the partitions, records and locks of a checkpoint that is kept as a log
- `spark_files/`: offset log, commit log, state files, as Spark writes them
- `batches`: plans, commits and state of each batch, and whether one can go back to it;
  `batch_selection`: which batch a time or offsets mean
- `truncation`: what of a checkpoint goes when it is cut back; `truncated_copy`: writes the rest
- `query_sink`: what the query writes to; `file_sink_cut`: the log of Spark's file sink follows
- `staged_checkpoint`: made beside its name; `unfinished_reset`: the log has yet to follow
- `running_query`: does the query run? `nesting`: checkpoint and log must not lie in one another;
  `ownership`: owner and mode of new files
"""

from sparklog.checkpoint.backup.archiving import Archived, archive
from sparklog.checkpoint.backup.restoring import Restored, list_points, restore
from sparklog.checkpoint.backup.snapshots import Snapshot
from sparklog.checkpoint.changes import changes
from sparklog.checkpoint.convert import Converted, export, import_
from sparklog.checkpoint.fork import Forked, fork
from sparklog.checkpoint.history import BatchRow, History, history
from sparklog.checkpoint.reset import Reset, reset
from sparklog.checkpoint.verify import CheckpointReport, verify

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
