"""A streaming query as a registered reader of its log: see `Log.readers`.

The process that plans a query's micro-batches is told nothing of the query by Spark 4.3: neither
its id nor its checkpoint, and commit() comes with the next micro-batch, the last one's never. Its
tasks know the id. So the first task of a micro-batch registers where that begins: all before it
is committed, for Spark runs a micro-batch only when the one before is in its commit log, and a
restarted query goes on no earlier. The last micro-batch of a run so counts as not read yet.
"""

import logging
import socket

from pyspark import TaskContext

from sparklog.clock import Clock, system_clock
from sparklog.errors import SparklogError
from sparklog.fs import LOCAL
from sparklog.log.ledger import ledger_path
from sparklog.log.paths import split_path
from sparklog.log.readers import commit_offsets
from sparklog.source.offsets import Offsets, Ranges
from sparklog.source.options import SourceOptions

_LOGGER = logging.getLogger("sparklog.source")


def begins(start: Offsets, end: Offsets, held: Ranges) -> Offsets:
    """Return where a micro-batch begins in all partitions that it knows and the log holds."""
    return {p: max(start.get(p, 0), held[p][0]) for p in sorted(end.keys() & held.keys())}


def register(options: SourceOptions, start: Offsets, clock: Clock = system_clock) -> None:
    """Commit `start` for the query whose task this is; a failure is a warning.

    What was committed before then stands, and holds back more, not less. A broker's directory is
    left alone, unless option kafka.group.id asks for it: nothing there waits for readers.
    """
    context = TaskContext.get()
    if context is None:
        return
    group = options.group(context.getLocalProperty("sql.streaming.queryId"))
    home = split_path(options.path or "")[0]
    if group is None or (options.group_id is None and not LOCAL.is_dir(ledger_path(home))):
        return
    batch = context.getLocalProperty("streaming.sql.batchId")
    try:
        commit_offsets(
            LOCAL,
            home,
            group,
            start,
            now_ms=clock(),
            kind="query",
            host=socket.gethostname(),
            app=context.getLocalProperty("spark.app.id") or "",
            batch=None if batch is None else int(batch),
        )
    except SparklogError as error:
        _LOGGER.warning("%s: the query reads on, but retention may not wait for it", error)
