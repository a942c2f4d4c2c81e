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
from sparklog.clock import Clock, system_clock
from sparklog.errors import InvalidRequestError
from sparklog.fs import LOCAL, FileSystem
from sparklog.state.comparison import FamilyDifference, compare
from sparklog.state.plain_copy import plain_view
from sparklog.state.tables import OperatorState, StateTables, operator_state, sum_of

Path = str | os.PathLike[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The result of `diff`.

    Attributes:
        batch: The batch whose state was compared.
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
            the directory of temporary files.
        spark: The session, which has sparklog's jar; by default the active session.
        storage_options: Options of fsspec for checkpoints in a bucket.
        fs: The file system of the checkpoints; for tests.
        clock: The current time in milliseconds since the epoch; for tests.

    Raises:
        InvalidRequestError: The checkpoints have no batch in common, other operators, or state of
            other types.
        DataCorruptionError: A file of a checkpoint is damaged.

    Cost:
        Reads the state of both checkpoints once, and again if they differ.

    Examples:
        >>> from sparklog.checkpoint import diff, rewrite
        >>> moved = rewrite("checkpoint", "moved", provider="rocksdb", spark=spark)
        >>> diff("checkpoint", "moved", spark=spark).families
        []
    """
    tables = StateTables(spark)
    found = [
        Checkpoint.open(path, fs, storage_options=storage_options or {}) for path in (first, second)
    ]
    both = [Batches(each) for each in found]
    if batch is None:
        common = set(both[0].committed) & set(both[1].committed)
        batch = max(common, default=-1)
    for each in both:
        each.check_reachable(batch)
    with contextlib.ExitStack() as stack:
        views = [
            Batches(
                stack.enter_context(plain_view(each, batch, scratch=scratch, fs=fs, clock=clock))
            )
            for each in found
        ]
        pairs = _pairs(views, batch)
        differences: list[FamilyDifference] = []
        rows = [0, 0]
        for pair in pairs:
            totals = [_by_family(tables, state) for state in pair]
            for number, (store, family) in enumerate(pair[0].families()):
                here, there = (total[number] for total in totals)
                rows = [rows[0] + here.rows, rows[1] + there.rows]
                if here != there:
                    counts = (here.rows, there.rows)
                    one, other = (tables.table(state, store, family) for state in pair)
                    name = f"{store}/{family}"
                    differences.append(compare(pair[0].operator.id, name, one, other, counts))
    return Difference(batch=batch, rows=(rows[0], rows[1]), families=differences)


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
        kinds = [
            {
                (schema.store, family.name, str(family.key), str(family.value))
                for schema in state.schemas
                for family in schema.families.values()
            }
            for state in (one, other)
        ]
        if kinds[0] != kinds[1]:
            raise InvalidRequestError(
                f"the state of operator {operator} has other columns or types in the two "
                f"checkpoints: {sorted(kinds[0] ^ kinds[1])}"
            )
        pairs.append((one, other))
    return pairs


def _by_family(tables: StateTables, state: OperatorState) -> list[Any]:
    return [sum_of(list(family)) for family in zip(*tables.digests(state), strict=True)]
