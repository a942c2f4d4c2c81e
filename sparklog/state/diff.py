"""`diff`: whether the state of two checkpoints is equal after a batch, and where it differs.

Number of partitions, provider and kind of the checkpoints don't matter.
"""

import contextlib
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pyspark.sql import SparkSession

from sparklog.checkpoint.batches import Batches
from sparklog.checkpoint.files import Checkpoint
from sparklog.checkpoint.running_query import report_concurrent_cleanup
from sparklog.clock import Clock, system_clock
from sparklog.errors import InvalidRequestError
from sparklog.fs import LOCAL, FileSystem
from sparklog.state.comparison import FamilyDifference, compare
from sparklog.state.plain_copy import plain_view, reachable_batch
from sparklog.state.tables import Digest, OperatorState, StateTables, operator_state, sum_of

Path = str | os.PathLike[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The result of `diff`.

    Attributes:
        batch: The batch after which the state was compared.
        rows: The number of rows that were compared, in each of the two checkpoints.
        families: The families that differ.

    Examples:
        >>> from sparklog.checkpoint import diff
        >>> diff("checkpoint", "checkpoint", spark=spark).is_equal
        True
    """

    batch: int
    rows: tuple[int, int]
    families: list[FamilyDifference]

    @property
    def is_equal(self) -> bool:
        """Whether all state is equal."""
        return not self.families

    def to_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return {**asdict(self), "is_equal": self.is_equal}

    def __str__(self) -> str:
        if self.is_equal:
            return f"the state after batch {self.batch} is equal: {self.rows[0]} rows"
        found = "\n".join(map(str, self.families))
        return f"the state after batch {self.batch} differs:\n{found}"


def diff(
    first: Path,
    second: Path,
    *,
    batch: int | None = None,
    scratch: Path | None = None,
    spark: SparkSession | None = None,
    storage_options: Mapping[str, Any] | None = None,
    fs: FileSystem = LOCAL,
    clock: Clock = system_clock,
) -> Difference:
    """Compare the state of two checkpoints after a batch.

    Use it before a changed query takes over from the old query: both run beside each other, and
    their state must agree. Both queries may be running.

    Args:
        first: The checkpoint: a local path, or the URL of a checkpoint in a bucket.
        second: The other checkpoint.
        batch: The batch; by default the newest batch that is committed in both.
        scratch: A directory for temporary copies, which driver and executors reach; by default
            the directory of temporary files. Or a URL, as in `rewrite`.
        spark: The session, which has sparklog's jar; by default the active session.
        storage_options: Options of fsspec for checkpoints in a bucket.
        fs: The file system of the checkpoints; for tests.
        clock: The current time in milliseconds since the epoch; for tests.

    Raises:
        InvalidRequestError: The checkpoints have no batch in common, other operators, or state of
            other types.
        DataCorruptionError: A file of a checkpoint is damaged.
        LogLockedError: A query removes files that the batch needs.

    Cost:
        Reads the state of both checkpoints once, and again if they differ.

    Examples:
        >>> from sparklog.checkpoint import diff, rewrite
        >>> moved = rewrite("checkpoint", "moved", provider="rocksdb", spark=spark)
        >>> diff("checkpoint", "moved", spark=spark).families
        []
    """
    both = [
        Batches(Checkpoint.open(path, fs, storage_options=storage_options or {}))
        for path in (first, second)
    ]
    if batch is None:
        batch = max(set(both[0].committed) & set(both[1].committed), default=-1)
    differences: list[FamilyDifference] = []
    totals = []
    with contextlib.ExitStack() as stack:
        tables = stack.enter_context(StateTables(spark, scratch))
        views = []
        for batches in both:
            stack.enter_context(report_concurrent_cleanup(batches.checkpoint.path))
            reachable_batch(batches, batch)
            view = plain_view(batches, batch, scratch=scratch, fs=fs, clock=clock)
            views.append(Batches(stack.enter_context(view)))
        for pair in _pairs(views, batch):
            one, other = (_by_family(tables, state) for state in pair)
            totals.append((sum_of(one), sum_of(other)))
            differences += [
                _difference(tables, pair, family, (here.rows, there.rows))
                for family, here, there in zip(pair[0].families(), one, other, strict=True)
                if here != there
            ]
    rows = sum(one.rows for one, _ in totals), sum(other.rows for _, other in totals)
    return Difference(batch=batch, rows=rows, families=differences)


def _difference(
    tables: StateTables,
    pair: tuple[OperatorState, OperatorState],
    family: tuple[str, str],
    rows: tuple[int, int],
) -> FamilyDifference:
    one, other = (tables.table(state, *family) for state in pair)
    return compare(pair[0].operator.id, "/".join(family), one, other, rows)


def _pairs(views: list[Batches], batch: int) -> list[tuple[OperatorState, OperatorState]]:
    first, second = views
    if first.operators != second.operators:
        raise InvalidRequestError(
            f"{first.checkpoint.path} has the stateful operators {first.operators}, and "
            f"{second.checkpoint.path} has {second.operators}: only equal queries can be compared"
        )
    pairs = []
    for operator in first.operators:
        one, other = (
            operator_state(view, operator, batch, f"file:{view.checkpoint.path}") for view in views
        )
        if one.columns() != other.columns():
            differs = sorted(set(one.columns().items()) ^ set(other.columns().items()))
            raise InvalidRequestError(
                f"the state of operator {operator} has other columns or types in the two "
                f"checkpoints: {differs}"
            )
        pairs.append((one, other))
    return pairs


def _by_family(tables: StateTables, state: OperatorState) -> list[Digest]:
    return [sum_of(family) for family in zip(*tables.digests(state), strict=True)]
