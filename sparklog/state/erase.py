"""`erase`: a fork of a checkpoint without the rows of state that match a condition.

A person may be in keys, in values, or in both, and each operator has columns of its own. A
condition applies to all rows that have its columns.
"""

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sparklog.checkpoint.backup.restoring import list_points
from sparklog.checkpoint.batches import Batches
from sparklog.checkpoint.spark_files.state_stores import DEFAULT_STORE
from sparklog.clock import Clock, stopwatch, system_clock
from sparklog.errors import InvalidRequestError
from sparklog.fs import LOCAL, FileSystem
from sparklog.logdir.paths import store_url
from sparklog.pluralize import pluralize
from sparklog.spark_errors import brief
from sparklog.state.change import StateChange
from sparklog.state.functions import StateFunction, StateFunctions
from sparklog.state.joins import SIDES, rows_of_side
from sparklog.state.operators import Operator
from sparklog.state.plain_copy import plain_fork
from sparklog.state.tables import StateTables
from sparklog.state.variables import changeable_names

Path = str | os.PathLike[str]
_STORED: Final = "_stored"


@dataclass(frozen=True, slots=True, kw_only=True)
class Erased:
    """The result of `erase`.

    Attributes:
        path: The original checkpoint.
        new_path: The new checkpoint; with `dry_run`, where it would be.
        batch: The batch after which the query of the new checkpoint continues.
        rows: {rows of an operator: the number that was erased, and the number that is left}.
        not_examined: The rows of operators that have the columns of no condition.
        still_there: The places that have the rows, or may have them: the original, and archives.
        restore_point: The path of the original after a change in place; else None.
        is_dry_run: Whether no checkpoint was created.
        took_ms: The duration, in milliseconds.

    Examples:
        >>> from sparklog.checkpoint import bootstrap, erase
        >>> history = spark.createDataFrame([("N1",), ("N2",), ("N3",)], "flight string")
        >>> made = bootstrap("flights", lambda rows: rows.dropDuplicates(), from_=history)
        >>> done = erase(made.path, "erased", "key.flight = 'N1'", spark=spark)
        >>> done.rows
        {'operator 0': (1, 2)}
    """

    path: str
    new_path: str
    batch: int
    rows: dict[str, tuple[int, int]]
    not_examined: list[str]
    still_there: list[str]
    restore_point: str | None
    is_dry_run: bool
    took_ms: int

    def to_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        verb = "would continue" if self.is_dry_run else "continues"
        rows = self.rows.items()
        lines = [f"{self.new_path} {verb} after batch {self.batch} of {self.path}"]
        lines += [
            f"{name}: {pluralize(gone, 'row')} erased, {left} left" for name, (gone, left) in rows
        ]
        lines += [f"{name}: not examined, no condition fits" for name in self.not_examined]
        lines += [f"the rows may still be in {place}" for place in self.still_there]
        return "\n".join(lines)


def erase(
    source: Path,
    target: Path | None,
    where: str | Sequence[str],
    *,
    to: int | None = None,
    archives: Sequence[str] = (),
    in_place: bool = False,
    dry_run: bool = False,
    scratch: Path | None = None,
    spark: SparkSession | None = None,
    storage_options: Mapping[str, Any] | None = None,
    fs: FileSystem = LOCAL,
    clock: Clock = system_clock,
) -> Erased:
    """Create a checkpoint that continues after a batch without some rows of its state.

    The original still has the rows, also as the restore point of a change in place: delete it when
    the query runs with the new checkpoint. The new checkpoint has the state of a single batch,
    without the rows.

    Args:
        source: The checkpoint: a local path, or the URL of a checkpoint in a bucket.
        target: The new checkpoint: a local path, or a URL; None with `in_place`.
        where: A condition in SQL, or several. A row that matches any of them is erased. A condition
            applies to all rows that have its columns, in all operators, on both sides of joins, and
            in all state variables and timers of transformWithState. The columns are key, the struct
            of the operator's key, and value, the struct of a row's value. In addition, an entry of
            a map has userKey, a timer expiryTimestampMs, and a value or entry with a TTL
            ttlExpirationMs. In a list the condition applies to each value.
        to: The batch; by default the newest batch that the query can continue after.
        archives: URLs to which the checkpoint is archived; the report names their snapshots.
        in_place: Replace the original in a single step, while its query is stopped: a local
            directory, or a checkpoint in runs. The report names the restore point: the original
            under another name, or in a bucket a copy of the original.
        dry_run: Report, but create no checkpoint.
        scratch: A directory for temporary files, or a URL, as in `rewrite`.
        spark: The session, which has sparklog's jar; by default the active session.
        storage_options: Options of fsspec for checkpoints and archives in a bucket.
        fs: The file system of the checkpoints; for tests.
        clock: The current time in milliseconds since the epoch; for tests.

    Raises:
        InvalidRequestError: A condition is no SQL, or no rows have its columns, or `target` exists.
        DataCorruptionError: A file of the checkpoint is damaged.
        LogLockedError: The query removes files that the batch needs, or runs during a change in
            place.
        StorageUnavailableError: The disk or a store fails. A failed call leaves no new checkpoint,
            but can leave the restore point of a change in place in a bucket.

    Cost:
        The cost of `rewrite` with functions for all operators.

    Examples:
        >>> from sparklog.checkpoint import bootstrap, erase
        >>> history = spark.createDataFrame([("N1",), ("N2",), ("N3",)], "flight string")
        >>> made = bootstrap("flights", lambda rows: rows.dropDuplicates(), from_=history)
        >>> print(erase(made.path, "erased", "key.flight = 'N1'", dry_run=True, spark=spark))
        /.../erased would continue after batch 0 of /.../flights
        operator 0: 1 row erased, 2 left
        the rows may still be in /.../flights (state after batch 0)
    """
    watch = stopwatch()
    conditions = [where] if isinstance(where, str) else list(where)
    if not conditions:
        raise InvalidRequestError("no condition is given: where must have at least one")
    points = {url: list_points(url, storage_options=storage_options) for url in archives}
    fork = plain_fork(
        source, target, to=to, in_place=in_place, scratch=scratch,
        storage_options=storage_options, fs=fs, clock=clock,
    )  # fmt: skip
    rows = {}
    with StateTables(spark, scratch) as tables, fork as (batches, batch, copy):
        change = StateChange(tables, copy.checkpoint, batch, None, None)
        search = Search(conditions)
        for number in batches.operators:
            state = change.state(number)
            report = change.write(number, search.functions(state.operator, state.families()), state)
            assert report is not None
            for family, (before, after) in report.families.items():
                if family in search.names:
                    rows[search.names[family]] = before - after, after
        search.check()
        change.finish()
        versions = _numbers(batches)
        if not dry_run:
            copy.publish()
    place = None if dry_run else copy.restore_point
    path = batches.checkpoint.path
    old = [f"{place or path} (state after {versions})"]
    if place is not None and store_url(path) is not None:
        old.append(f"{path} (older runs, which the query's next start deletes)")
    snapshots = [f"{url} (snapshot {p.name})" for url, found in points.items() for p in found]
    return Erased(
        path=path,
        new_path=copy.target,
        batch=batch,
        rows={name: count for name, count in rows.items() if name not in search.not_examined},
        not_examined=search.not_examined,
        still_there=[*old, *snapshots],
        restore_point=place,
        is_dry_run=dry_run,
        took_ms=watch(),
    )


class Search:
    """Finds the rows that match conditions, in all operators.

    Attributes:
        names: {family: the name of its rows in the report}.
        not_examined: The rows that have the columns of no condition.
    """

    def __init__(self, conditions: Sequence[str]) -> None:
        self._conditions = conditions
        self._used: set[str] = set()
        self._columns: list[str] = []
        self.names: dict[str, str] = {}
        self.not_examined: list[str] = []

    def functions(
        self, operator: Operator, families: Collection[tuple[str, str]]
    ) -> StateFunctions:
        """Return functions that drop the matching rows of an operator with these families."""

        def function(store: str, family: str, name: str) -> StateFunction:
            title = f"operator {operator.id}" + (f", {name}" if name else "")
            self.names[f"{store}/{family}"] = title
            return partial(self._without, _Rows.of(operator, name), title)

        if operator.is_join:
            return {side: function(*rows_of_side(families, side), side) for side in SIDES}
        if operator.is_transform:
            return {
                name: function(DEFAULT_STORE, operator.family(name), name)
                for name in changeable_names(operator, operator)
            }
        return function(DEFAULT_STORE, DEFAULT_STORE, "")

    def _without(self, shape: "_Rows", title: str, rows: DataFrame) -> DataFrame:
        columns = shape.columns(rows)
        fitting = [each for each in self._conditions if shape.fits(columns, each)]
        self._used.update(fitting)
        self._columns.append(f"{title} ({shape.description(columns)})")
        if not fitting:
            self.not_examined.append(title)
            return rows
        return shape.without(columns, " OR ".join(f"({each})" for each in fitting))

    def check(self) -> None:
        """Check that each condition applies to some rows.

        Raises:
            InvalidRequestError: No rows have the columns of a condition.
        """
        for condition in self._conditions:
            if condition not in self._used:
                raise InvalidRequestError(
                    f"no rows have the columns of the condition {condition}. Use a condition on "
                    f"these columns: {'; '.join(self._columns)}"
                )


@dataclass(frozen=True, slots=True)
class _Rows:
    """How rows are stored: the key beside another part, a value beside its expiration, a list."""

    is_compound: bool
    expires: bool
    is_list: bool

    @classmethod
    def of(cls, operator: Operator, name: str) -> "_Rows":
        is_timer = operator.is_transform and operator.family(name) == operator.timers
        return cls(
            is_compound=is_timer or name in operator.maps,
            expires=operator.variables.get(name, False),
            is_list=name in operator.lists,
        )

    def columns(self, rows: DataFrame) -> DataFrame:
        """Return the columns of conditions, and the stored row."""
        key = ["key.*"] if self.is_compound else ["key"]
        value = ["value.*"] if self.expires and not self.is_list else ["value"]
        return rows.select(F.struct("key", "value").alias(_STORED), *key, *value)

    def description(self, columns: DataFrame) -> str:
        """Return the names and types of the columns of conditions."""
        if self.is_list:
            fields = ["value.*"] if self.expires else ["value"]
            values = columns.select("key", F.explode("value").alias("value"))
            columns = values.select("key", *fields)
        types = {f.name: f.dataType.simpleString() for f in columns.schema if f.name != _STORED}
        return ", ".join(f"{name} {type_}" for name, type_ in types.items())

    def fits(self, columns: DataFrame, condition: str) -> bool:
        """Whether the rows have the columns of a condition.

        Raises:
            InvalidRequestError: The condition is no SQL.
        """
        try:
            self.without(columns, condition)
        except ParseException as error:
            raise InvalidRequestError(
                f"the condition {condition} is no SQL: {brief(error)}"
            ) from error
        except AnalysisException:
            return False
        return True

    def without(self, columns: DataFrame, condition: str) -> DataFrame:
        """Return the stored rows that don't match a condition. Matching values leave a list."""
        keeps = f"NOT coalesce(({condition}), false)"
        if not self.is_list:
            return columns.where(keeps).select(f"{_STORED}.*")
        # A lambda's parameter hides the column of the same name, and names a part of an entry.
        for name in ("value", "ttlExpirationMs") if self.expires else ():
            keeps = f"exists(array(entry.{name}), {name} -> {keeps})"
        entry = "entry" if self.expires else "value"
        kept = F.expr(f"filter(value, {entry} -> {keeps})").alias("value")
        return columns.select(F.col(_STORED)["key"].alias("key"), kept)


def _numbers(batches: Batches) -> str:
    found = batches.reachable()
    return f"batches {found[0]} to {found[-1]}" if len(found) > 1 else f"batch {found[0]}"
