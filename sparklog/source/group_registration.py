"""Register a streaming query as a reader of the log that the query reads; see `Log.readers`.

Spark 4.3 does not tell the process that plans a query's micro-batches the query's id or checkpoint.
Spark calls commit() only with the next micro-batch, and never for the last micro-batch. Tasks know
the id. The first task of a micro-batch therefore registers the start offsets of the micro-batch,
and the `Planner` that planned it. All earlier offsets are committed, because Spark runs a
micro-batch only when the previous micro-batch is in its commit log, and a restarted query does not
continue earlier.

After that the planner knows the group. When Spark requests the next micro-batch, its start offsets
are in the commit log, so the planner registers these offsets. A query that has read everything thus
shows no lag. Exceptions are queries for which Spark does not request another micro-batch (trigger
Once, a stopped or failed query), and queries with two sources that read the same topic: their tasks
know only the lower offset.

If the JVM's data source wraps this data source, it passes the query and the micro-batch, and no
task has to register them.

Spark 4.3 does not pass the query's name. The name is part of the description of the query's jobs,
which tasks and the JVM can read.
"""

import logging
import socket
import uuid
from typing import Final

from pyspark import TaskContext

from sparklog.clock import Clock, system_clock
from sparklog.errors import SparklogError
from sparklog.source.offsets import Offsets, Ranges
from sparklog.source.open_homes import cached_home
from sparklog.source.options import SourceOptions
from sparklog.storage.group_store import Groups, check_kept
from sparklog.storage.groups import NAME_CHARS_MAX, NO_ORIGINS, Origins, Reader

RENEW_MS: Final = 300_000
"""A query without new records commits again after this time, long before commits expire."""
_LOGGER = logging.getLogger("sparklog.source")
_FAILED: Final = "%s: the query reads on, but retention may not wait for it"


def batch_start_offsets(start: Offsets, end: Offsets, held: Ranges) -> Offsets:
    """Return a micro-batch's start in each partition that is in the micro-batch and in the log."""
    return {p: max(start.get(p, 0), held[p][0]) for p in sorted(end.keys() & held.keys())}


def query_name(description: str | None, query_id: str | None) -> str:
    """Return the query's name from the description of a job, or "" without a name.

    A foreachBatch function that sets another description hides the name. Source:
    StreamExecution.getBatchDescriptionString (Spark 4.3).
    """
    # From the right: the name itself may contain this text.
    name, _, _ = (description or "").rpartition(f"\nid = {query_id}\nrunId = ")
    return name if len(name) <= NAME_CHARS_MAX else name[: NAME_CHARS_MAX - 1] + "\u2026"


def register(
    options: SourceOptions,
    start: Offsets,
    clock: Clock = system_clock,
    *,
    origins: Origins = NO_ORIGINS,
    planner: str | None = None,
) -> None:
    """Commit `start` for the query that runs this task. A failure is a warning.

    The earlier commit then stays, which retains more records, not fewer. A broker's directory is
    left unchanged (see `warn_unless_kept`).
    """
    context = TaskContext.get()
    if context is None:
        return
    query_id = context.getLocalProperty("sql.streaming.queryId")
    group = options.group(query_id)
    if group is None:
        return
    batch = context.getLocalProperty("streaming.sql.batchId")
    query = Reader(
        group,
        "query",
        host=socket.gethostname(),
        app=context.getLocalProperty("spark.app.id") or "",
        batch=None if batch is None else int(batch),
        run=context.getLocalProperty("spark.jobGroup.id") or "",
        name=query_name(context.getLocalProperty("spark.job.description"), query_id),
    )
    try:
        groups = cached_home(options).groups
        if groups.are_waited_for:
            groups.commit_query(query, start, now_ms=clock(), planner=planner, origins=origins)
    except SparklogError as error:
        _LOGGER.warning(_FAILED, error)


def warn_unless_kept(groups: Groups, options: SourceOptions) -> None:
    """Warn that option kafka.group.id has no effect if the log registers no readers."""
    if options.group_id is not None:
        try:
            check_kept(groups, options.path or "")
        except SparklogError as error:
            _LOGGER.warning("option kafka.group.id has no effect: %s", error)


class Planner:
    """Registers the query from the process that plans micro-batches for a source of the query."""

    def __init__(self, options: SourceOptions, clock: Clock = system_clock) -> None:
        self._options, self._clock = options, clock
        self.id = uuid.uuid4().hex
        self._has_planned = False
        self._group: str | None = None
        self._is_heeded = True  # if False, the query's tasks register its offsets
        self._said: Offsets | None = None
        self._due_ms = 0

    def planned(self) -> str:
        """Return the id under which a task registers this planner."""
        self._has_planned = True
        return self.id

    def registered(
        self, groups: Groups, start: Offsets, origins: Origins, batch: int | None = None
    ) -> bool:
        """Register the start of a micro-batch. Return False if a task must register it.

        A task must do so if the query is unknown, or, without `batch`, if another source of the
        query reads the same topic. Usually only the first micro-batch is registered here;
        `committed` registers later micro-batches. A failure is a warning.
        """
        caller = self._options.caller
        group = None if caller.query_id is None else self._options.group(caller.query_id)
        if group is None or not (self._is_heeded or batch is not None):
            return False
        if self._group is not None and self._is_heeded:
            return True
        query = Reader(
            group, "query", host=socket.gethostname(), app=caller.app_id, run=caller.run_id,
            batch=batch, name=query_name(caller.description, caller.query_id),
        )  # fmt: skip
        try:
            if groups.are_waited_for:
                groups.commit_query(
                    query, start, now_ms=self._clock(), planner=self.id, origins=origins
                )
                self._group, self._has_planned = group, True
        except SparklogError as error:
            _LOGGER.warning(_FAILED, error)
        return True

    def committed(self, groups: Groups, offsets: Offsets, origins: Origins) -> None:
        """Register that all records before `offsets` are in the query's commit log.

        Repeated after RENEW_MS, so that a query that waits for new records does not expire. Has no
        effect before a task has registered the query. A failure is a warning.
        """
        now_ms = self._clock()
        if not self._has_planned or (offsets == self._said and now_ms < self._due_ms):
            return
        try:
            if not groups.are_waited_for:
                return
            if self._group is None:
                self._group = groups.group_of_planner(self.id)
            if self._group is not None:
                self._is_heeded = groups.commit_planned(
                    self._group, offsets, planner=self.id, now_ms=now_ms, origins=origins
                )
                self._said, self._due_ms = dict(offsets), now_ms + RENEW_MS
        except SparklogError as error:
            _LOGGER.warning(_FAILED, error)
