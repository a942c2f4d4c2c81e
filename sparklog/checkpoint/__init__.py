"""A streaming query's checkpoint as data: what is in it, is it whole, back to a batch of it.

    from sparklog import checkpoint
    checkpoint.history("/data/checkpoint").table()                 # a row for each batch
    checkpoint.fork("/data/checkpoint", "/data/try", to=120)       # a query that goes on from there
    checkpoint.reset("/data/checkpoint", to=120, log="/data/log")  # the same, in place
    checkpoint.changes("/data/checkpoint", operator=0).read_all()  # what each batch did to state

For checkpoints of Spark's own manager (files) and of sparklog's (records of a log dir). Without
Spark: nothing here starts it.

layout      which record is which file            partition, remains   records read
writing     records appended, cleaned             lookup      one path, for the sink
files       both kinds as one                     locking     who writes, and whether a query runs
offsets, commits, stores, state_files, file_sources, checksums     what Spark writes
batches     which batch can be gone back to       history, verify
selection, cut, building, place, pending, running                  of fork and reset
convert     import_ and export           rights    whose new files are    apart
changes     state as a topic: changelog, state_schema, unsafe_row, state_rows
archiving, restoring, pruning      to any URL and back; points, repository, sending,
            pieces, marks: its layout
"""

from sparklog.checkpoint.backup.archiving import Archived, archive
from sparklog.checkpoint.backup.pruning import Pruned, list_points, prune
from sparklog.checkpoint.backup.restoring import Restored, restore
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
    "Pruned",
    "Reset",
    "Restored",
    "archive",
    "changes",
    "export",
    "fork",
    "history",
    "import_",
    "list_points",
    "prune",
    "reset",
    "restore",
    "verify",
]
