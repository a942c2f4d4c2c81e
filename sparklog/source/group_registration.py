"""Registers a streaming query as a reader of its log: see `Log.readers`.

The process that plans a query's micro-batches is told nothing of the query by Spark 4.3: neither
its id nor its checkpoint, and commit() comes with the next micro-batch, the last one's never. Its
tasks know the id. So the first task of a micro-batch registers where that begins, and which
`Planner` planned it; all before it is committed, for Spark runs a micro-batch only when the one
before is in its commit log, and a restarted query goes on no earlier.

From then on the planner knows the group. It is asked for the next micro-batch with the offsets
behind the last one, once that is in the commit log: it registers those. So a query that has read
all shows no lag, unless Spark doesn't ask again (trigger Once, a query that is stopped, or fails,
before its next trigger), or two sources of the query read the same topic, of which the tasks of
one micro-batch know the lower offset only.

Where the JVM's data source stands before this one it says which query and micro-batch it is, so
that the planner needs no task to tell it.

Spark 4.3 tells neither of them the query's name. The name is part of the description of the
query's jobs, which both can read.
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
from sparklog.storage.groups import (
    NAME_CHARS_MAX,
    NO_ORIGINS,
    Groups,
    Origins,
    Reader,
    check_kept,
)

RENEW_MS: Final = 300_000
_LOGGER = logging.getLogger("sparklog.source")
_FAILED: Final = "%s: the query reads on, but retention may not wait for it"


def batch_start_offsets(start: Offsets, end: Offsets, held: Ranges) -> Offsets:
    """Return where a micro-batch begins in all partitions that it knows and the log holds."""
    return {p: max(start.get(p, 0), held[p][0]) for p in sorted(end.keys() & held.keys())}


def query_name(description: str | None, query_id: str | None) -> str:
    """Return the name of the query that a job's description names; "" where it names none.

    A job that foreachBatch has given another description names none.
    Source: StreamExecution.getBatchDescriptionString (Spark 4.3).
    """
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
    """Commit `start` for the query whose task this is; a failure is a warning.

    What was committed before then stands, and holds back more, not less. A broker's directory is
    left alone (see `warn_unless_kept`).
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
    """Tell who gave the query a name where nothing is registered: in a broker's directory."""
    if options.group_id is not None:
        try:
            check_kept(groups, options.path or "")
        except SparklogError as error:
            _LOGGER.warning("option kafka.group.id has no effect: %s", error)


class Planner:
    """What the process that plans for one source of a query knows of the query's group."""

    def __init__(self, options: SourceOptions, clock: Clock = system_clock) -> None:
        self._options, self._clock = options, clock
        self.id = uuid.uuid4().hex
        self._has_planned = False
        self._group: str | None = None
        self._is_heeded = True  # else it is for the query's tasks to say how far it is
        self._said: Offsets | None = None
        self._due_ms = 0

    def planned(self) -> str:
        """Note that a task will register this planner, by the id that is returned."""
        self._has_planned = True
        return self.id

    def registered(
        self, groups: Groups, start: Offsets, origins: Origins, batch: int | None = None
    ) -> bool:
        """Register where a micro-batch begins; False if a task is to do that.

        So where nobody has said which query this is, or, without `batch`, where another source of
        it reads the same topic. As a rule only the first one: all later ones by `committed`. A
        failure is a warning.
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
        """Register with the log's groups that all before `offsets` is in the query's commit log.

        Again after RENEW_MS, so that a query which waits for something new doesn't expire. Before
        a task has registered the query nothing happens; a failure is a warning.
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
