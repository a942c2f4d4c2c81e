"""`rewrite`: a fork of a checkpoint with changed state, in another provider, or both.

The fork is built as Spark's own files in a directory beside the target. Spark's state store
providers read the old state and write the new state, in a job with a task for each state partition.
The fork becomes visible when it is complete.
"""

import contextlib
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pyspark.sql import SparkSession

from sparklog.checkpoint.batches import Batches
from sparklog.checkpoint.files import Checkpoint
from sparklog.clock import Clock, stopwatch, system_clock
from sparklog.errors import InvalidRequestError
from sparklog.fs import LOCAL, FileSystem
from sparklog.state.change import PROVIDERS, RewrittenOperator, StateChange
from sparklog.state.functions import StateFunctions
from sparklog.state.plain_copy import plain_fork, plain_view, reachable_batch
from sparklog.state.tables import StateTables
from sparklog.state.template import Template, check_operators

Path = str | os.PathLike[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """The result of `rewrite`.

    Attributes:
        path: The original checkpoint.
        new_path: The new checkpoint; with `dry_run`, where it would be.
        batch: The batch after which the query of the new checkpoint continues.
        operators: The operators with new state.
        restore_point: The path of the original after a change in place; else None.
        is_dry_run: Whether no checkpoint was created.
        took_ms: The duration, in milliseconds.

    Examples:
        >>> from sparklog.checkpoint import rewrite
        >>> done = rewrite("checkpoint", "moved", provider="rocksdb", spark=spark)
        >>> done.is_dry_run
        False
    """

    path: str
    new_path: str
    batch: int
    operators: list[RewrittenOperator]
    restore_point: str | None
    is_dry_run: bool
    took_ms: int

    def to_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        rows = "".join(
            f"; operator {each.operator} ({each.name}): {sum(each.rows_before)} rows in "
            f"{len(each.rows_before)} partitions became {sum(each.rows_after)} rows in "
            f"{len(each.rows_after)}"
            for each in self.operators
        )
        verb = "would continue" if self.is_dry_run else "continues"
        columns = [
            f"operator {each.operator}, {family}: {before} becomes {after}"
            for each in self.operators
            for family, (before, after) in each.columns.items()
        ]
        changes = [str(found) for each in self.operators for found in each.differences]
        first = f"{self.new_path} {verb} after batch {self.batch} of {self.path}{rows}"
        lines = [first, *columns, *changes]
        if self.restore_point is not None:
            lines.append(f"the original is kept as {self.restore_point}")
        return "\n".join(lines)


def rewrite(
    source: Path,
    target: Path | None = None,
    *,
    to: int | None = None,
    operator: int = 0,
    with_: StateFunctions | None = None,
    provider: str | None = None,
    partitions: int | None = None,
    template: Path | None = None,
    in_place: bool = False,
    dry_run: bool = False,
    scratch: Path | None = None,
    spark: SparkSession | None = None,
    storage_options: Mapping[str, Any] | None = None,
    fs: FileSystem = LOCAL,
    clock: Clock = system_clock,
) -> Rewritten:
    """Create a checkpoint that continues after a batch with changed state.

    Without `in_place` the original is unchanged, and its query may be running. The new checkpoint
    has the same query id and the same batches, so sinks recognize its batches. The kind is that
    of the original: log-backed, or files of Spark; in a bucket the new checkpoint is in runs.

    Args:
        source: The checkpoint: a local path, or the URL of a checkpoint in a bucket.
        target: The new checkpoint: a local path, or a URL; None with `in_place`.
        to: The batch; by default the newest batch that the query can continue after.
        operator: The operator of `with_`.
        with_: A function from a DataFrame with the columns partition_id, key and value, as Spark's
            reader `statestore` returns it, to a DataFrame with the same columns key and value. For
            a join {"left": function, "right": function}, or one side; for transformWithState
            {state variable: function}, and "timers" for the timers. A list is a row per key
            with an array of the list's values; an empty array removes the list.
        provider: "hdfs" or "rocksdb", for all operators; by default as before.
        partitions: The number of state partitions, for all operators; by default as before.
        template: A checkpoint in which the changed query has run at least a batch, with any input.
            Schemas and settings come from it; `with_` returns rows of its columns. State
            variables that only the changed query has are empty at first, and others are dropped.
        in_place: Replace the original in a single step, while its query is stopped: a local
            directory, or a checkpoint in runs. The report names the restore point: the original
            under another name, or in a bucket a copy of the original.
        dry_run: Write the new state, report it, and remove it.
        scratch: A directory for the temporary files of a target in a bucket; by default the
            directory of the system. For a local target they are beside the target. Driver and
            executors must reach them. If they share no disk, use a URL of Spark, such as
            s3a://bucket/tmp: tasks then read and write copies of the state there.
        spark: The session, which has sparklog's jar; by default the active session.
        storage_options: Options of fsspec for checkpoints in a bucket.
        fs: The file system of the checkpoints; for tests.
        clock: The current time in milliseconds since the epoch; for tests.

    Raises:
        InvalidRequestError: The state can't be rewritten in this way, a function returns other
            columns, or `target` exists.
        DataCorruptionError: A file of the checkpoint is damaged.
        LogLockedError: The query removes files that the batch needs, or runs during a change in
            place.
        StorageUnavailableError: The disk fails. A failed call leaves no new checkpoint, but can
            leave the restore point of a change in place in a bucket.

    Cost:
        Reads and writes the state once, and reads it once more for the report. Two Spark jobs for
        each operator, and a job for each function of a side of a join, a state variable or
        timers: executors keep the returned rows in memory or on their disks until the state is
        written.

    Examples:
        >>> from sparklog.checkpoint import history, rewrite
        >>> done = rewrite("checkpoint", "wider", partitions=3, spark=spark)
        >>> history("wider").batches[-1].batch == done.batch
        True
    """
    watch = stopwatch()
    _check_change(with_, provider, partitions, template)
    with contextlib.ExitStack() as stack:
        tables = stack.enter_context(StateTables(spark, scratch))
        fork = plain_fork(
            source, target, to=to, in_place=in_place, scratch=scratch,
            storage_options=storage_options, fs=fs, clock=clock,
        )  # fmt: skip
        batches, batch, copy = stack.enter_context(fork)
        checkpoint = batches.checkpoint
        if with_ is not None and operator not in batches.operators:
            raise InvalidRequestError(_no_operator(checkpoint.path, operator, batches.operators))
        changed = None
        if template is not None:
            model = Batches(Checkpoint.open(template, fs, storage_options=storage_options or {}))
            newest = reachable_batch(model, None)
            viewing = plain_view(model, newest, scratch=scratch, fs=fs, clock=clock)
            changed = Template(Batches(stack.enter_context(viewing)), copy.place)
            check_operators(batches.operators, changed)
        change = StateChange(
            tables, copy.checkpoint, batch, provider, partitions, changed, compares=dry_run
        )
        written = [
            report
            for each in batches.operators
            if (report := change.write(each, with_ if each == operator else None)) is not None
        ]
        change.finish()
        if not dry_run:
            copy.publish()
    return Rewritten(
        path=checkpoint.path,
        new_path=copy.target,
        batch=batch,
        operators=written,
        restore_point=None if dry_run else copy.restore_point,
        is_dry_run=dry_run,
        took_ms=watch(),
    )


def _check_change(
    with_: StateFunctions | None,
    provider: str | None,
    partitions: int | None,
    template: Path | None,
) -> None:
    if with_ is None and provider is None and partitions is None and template is None:
        raise InvalidRequestError(
            "nothing would change: set with_, provider, partitions or template"
        )
    if provider is not None and provider not in PROVIDERS:
        raise InvalidRequestError(f"provider must be hdfs or rocksdb; got {provider!r}")
    if partitions is not None and partitions < 1:
        raise InvalidRequestError(f"partitions must be 1 or more; got {partitions}")


def _no_operator(path: str, operator: int, known: list[int]) -> str:
    has = f"its operators are {', '.join(map(str, known))}" if known else "its query has no state"
    return f"{path} has no stateful operator {operator}: {has}"
