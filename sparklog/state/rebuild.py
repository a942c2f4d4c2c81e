"""`rebuild`: computes lost state again, and creates a checkpoint with it.

The query reads its sources again, up to the recorded offsets, in a checkpoint of its own. State
partitions that can still be read must be equal in the result.
"""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame

from sparklog.checkpoint.batches import Batches
from sparklog.checkpoint.convert import export
from sparklog.checkpoint.files import Checkpoint
from sparklog.checkpoint.spark_files.metadata_logs import MetadataLogFile
from sparklog.checkpoint.staged_checkpoint import FORK, staged_checkpoint
from sparklog.clock import Clock, stopwatch, system_clock
from sparklog.errors import DataCorruptionError, InvalidRequestError
from sparklog.fs import LOCAL, FileSystem, make_directories, write_durably
from sparklog.logdir.paths import store_url
from sparklog.state.bootstrap import run_query
from sparklog.state.change import StateChange
from sparklog.state.operators import read_operator
from sparklog.state.plain_copy import (
    check_free,
    edit_metadata_log,
    open_original,
    plain_copy,
    scratch_name,
)
from sparklog.state.tables import Digest, OperatorState, StateTables, operator_state

Path = str | os.PathLike[str]
_AT_ONCE: Final = frozenset({"stateStoreSave", "dedupe"})
"""Operators whose state, without a watermark, does not depend on how rows were batched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """The result of `rebuild`.

    Attributes:
        path: The original checkpoint.
        new_path: The new checkpoint.
        batch: The batch after which the query of the new checkpoint continues.
        lost: {operator: the state partitions that could not be read}.
        equal: The number of state partitions that were left, and equal in the rebuilt state.
        how: How the query read its sources again.
        took_ms: The duration, in milliseconds.

    Examples:
        >>> import shutil
        >>> from sparklog.checkpoint import bootstrap, export, rebuild
        >>> source = spark.readStream.format("sparklog").option("startingOffsets", "earliest")
        >>> flights = source.option("subscribe", "flights").load(log.path)
        >>> query = flights.select("key").dropDuplicates()
        >>> made = bootstrap("seen", query)
        >>> exported = export("seen")
        >>> shutil.rmtree("seen/state/0/0")
        >>> done = rebuild("seen", "whole", query)
        >>> done.lost
        {0: [0]}
    """

    path: str
    new_path: str
    batch: int
    lost: dict[int, list[int]]
    equal: int
    how: str
    took_ms: int

    def to_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        lost = "; ".join(
            f"partitions {', '.join(map(str, numbers))} of operator {operator}"
            for operator, numbers in self.lost.items()
        )
        return (
            f"{self.new_path} continues after batch {self.batch} of {self.path}: {lost} were "
            f"rebuilt {self.how}; the {self.equal} partitions that were left are equal"
        )


def rebuild(
    source: Path,
    target: Path,
    query: DataFrame,
    *,
    to: int | None = None,
    output_mode: str = "append",
    scratch: Path | None = None,
    storage_options: Mapping[str, Any] | None = None,
    fs: FileSystem = LOCAL,
    clock: Clock = system_clock,
) -> Rebuilt:
    """Create a checkpoint with the state of a batch, although files of this state are lost.

    The query reads its sources again up to the offsets of the batch; its output is dropped.
    Aggregations and deduplication without a watermark read all in a single micro-batch. Other state
    depends on how the rows were batched, so the recorded micro-batches are run again, each with its
    offsets, its watermark and its time. The same is done if the result of the single micro-batch
    differs, as with collect_list or current_timestamp(). If Spark has removed the plans of the
    first micro-batches, a single micro-batch replaces them.

    The partitions that can be read must be equal in the rebuilt state. Otherwise no checkpoint is
    created: the sources may not have all rows any more, or the query may have changed.

    Args:
        source: The checkpoint: a local path, or the URL of a checkpoint in a bucket.
        target: The new checkpoint: a local path, or a URL.
        query: The streaming DataFrame, unstarted, as in the query of the checkpoint.
        to: The batch; by default the newest committed batch.
        output_mode: The output mode of the query: append, update or complete.
        scratch: A directory for temporary files; by default the directory of the system. Driver
            and executors must reach it.
        storage_options: Options of fsspec for checkpoints in a bucket.
        fs: The file system of the checkpoints; for tests.
        clock: The current time in milliseconds since the epoch; for tests.

    Raises:
        InvalidRequestError: No state is lost, the state that is left differs, the query can't be
            started or fails, or `target` exists.
        DataCorruptionError: A file is damaged that is not a file of state.
        StorageUnavailableError: The disk or the store fails. A failed call leaves no new
            checkpoint.

    Cost:
        The query reads its sources from their beginning. A start of the query for each recorded
        micro-batch, where the micro-batches matter.

    Examples:
        >>> import shutil
        >>> from sparklog.checkpoint import bootstrap, export, rebuild
        >>> source = spark.readStream.format("sparklog").option("startingOffsets", "earliest")
        >>> flights = source.option("subscribe", "flights").load(log.path)
        >>> query = flights.select("key").dropDuplicates()
        >>> made = bootstrap("seen", query)
        >>> exported = export("seen")
        >>> shutil.rmtree("seen/state/0/0")
        >>> done = rebuild("seen", "whole", query)
        >>> done.how
        'in one micro-batch'
    """
    watch = stopwatch()
    options = storage_options or {}
    check_free(target, fs, options)
    if scratch is not None and store_url(scratch) is not None:
        raise InvalidRequestError(f"scratch must be a directory here; got {scratch}")
    tables = StateTables(query.sparkSession)
    checkpoint = open_original(source, fs, options, to_end=False)
    batch = _committed(Batches(checkpoint), to)
    with staged_checkpoint(fs, scratch_name(scratch), FORK) as staged:
        plain = _readable_copy(checkpoint, batch, os.path.join(staged.directory, "left"), fs)
        for first in _first_batches(plain, batch):
            directory = os.path.join(staged.directory, f"again-{first}")
            replay = _replay(query, plain, first, batch, directory, output_mode, clock)
            comparison = _compare(tables, plain, batch, replay)
            if not comparison.wrong:
                break
        lost, digests = comparison.checked(batch), comparison.digests
        change = StateChange(tables, plain.checkpoint, batch, None, None)
        for operator, state in replay.states.items():
            change.write(operator, None, state, digests[operator])
        change.finish()
        copying = plain_copy(
            Batches(plain.checkpoint),
            batch,
            target,
            scratch=scratch,
            storage_options=options,
            fs=fs,
            clock=clock,
            is_log_backed=checkpoint.is_log_backed,
        )
        with copying as copy:
            copy.publish()
    return Rebuilt(
        path=checkpoint.path,
        new_path=copy.target,
        batch=batch,
        lost=lost,
        equal=comparison.equal,
        how=replay.how,
        took_ms=watch(),
    )


class _Replay(NamedTuple):
    """The state after the query has read its sources again: {operator: state}, and how it did."""

    states: dict[int, OperatorState]
    how: str


class _Comparison(NamedTuple):
    """Rebuilt state beside the state that is left.

    Attributes:
        lost: {operator: the partitions that can't be read}.
        wrong: {operator: the partitions that can be read, and differ}.
        equal: The number of partitions that are equal.
        digests: {operator: the digests of the rebuilt state}.
    """

    lost: dict[int, list[int]]
    wrong: dict[int, list[int]]
    equal: int
    digests: dict[int, list[list[Digest]]]

    def checked(self, batch: int) -> dict[int, list[int]]:
        """Return `lost`.

        Raises:
            InvalidRequestError: All partitions can be read, or a rebuilt partition differs.
        """
        for operator, numbers in self.wrong.items():
            raise InvalidRequestError(
                f"the rebuilt state of operator {operator} differs from the state that is left, in "
                f"partitions {', '.join(map(str, numbers))}, so nothing was written: the sources "
                "don't have all rows any more, or the query is not that of the checkpoint"
            )
        if not self.lost:
            raise InvalidRequestError(
                f"all state after batch {batch} can be read, so there is nothing to rebuild"
            )
        return self.lost


def _committed(batches: Batches, to: int | None) -> int:
    found = max(batches.committed, default=-1) if to is None else to
    if found not in batches.committed or found not in batches.planned:
        known = batches.committed
        has = f"{known[0]} to {known[-1]}" if known else "none"
        raise InvalidRequestError(f"batch {found} is not committed; committed batches: {has}")
    return found


def _readable_copy(checkpoint: Checkpoint, batch: int, directory: str, fs: FileSystem) -> Batches:
    """Copy the files up to a batch that can be read; files of state may be missing then."""
    for path in checkpoint.paths():
        kind, _, number = path.partition("/")
        if kind in ("offsets", "commits") and number.isdecimal() and int(number) > batch:
            continue
        try:
            data = checkpoint.read(path)
        except (DataCorruptionError, FileNotFoundError):
            if kind != "state" or "/_" in path:
                raise
            continue
        _put(fs, os.path.join(directory, path), data)
    return Batches(Checkpoint(directory, fs))


def _first_batches(plain: Batches, batch: int) -> list[int]:
    """Return from which micro-batches the query may read its sources again, in order.

    The first micro-batch of a replay reads all that was read until then.
    """
    names = {read_operator(plain.checkpoint, each, batch).name for each in plain.operators}
    first = batch
    while first - 1 in plain.planned:
        first -= 1
    if plain.offsets(batch).watermark_ms > 0 or not _AT_ONCE.issuperset(names):
        return [first]
    # The order of rows can matter nevertheless (collect_list), and so can current_timestamp().
    return sorted({first, batch}, reverse=True)


def _replay(
    query: DataFrame,
    plain: Batches,
    first: int,
    batch: int,
    directory: str,
    output_mode: str,
    clock: Clock,
) -> _Replay:
    """Run the recorded micro-batches again, beginning with a batch that stands for all before it.

    Raises:
        InvalidRequestError: The query can't be started, or fails.
    """
    fs, left = plain.checkpoint.fs, plain.checkpoint
    for path in left.paths():
        if path == "metadata" or path.startswith("sources/"):
            _put(fs, os.path.join(directory, path), left.read(path))
    for number, planned in enumerate(range(first, batch + 1)):
        path = f"offsets/{number}"
        _put(fs, os.path.join(directory, path), left.read(f"offsets/{planned}"))
        if number == 0 and first > 0:
            # No row is late in a micro-batch that stands for several.
            edit_metadata_log(Checkpoint(directory, fs), path, _without_watermark)
        run_query(query, directory, output_mode, once=True)
    export(directory, fs=fs, clock=clock)
    again = Batches(Checkpoint(directory, fs))
    last = batch - first
    if last not in again.committed:
        raise InvalidRequestError(
            f"the query did not commit micro-batch {batch} when it read its sources again"
        )
    if again.operators != plain.operators:
        raise InvalidRequestError(
            f"the query has the stateful operators {again.operators}, and the checkpoint has "
            f"{plain.operators}: use the query of the checkpoint"
        )
    for path in again.checkpoint.paths():
        # A lost partition 0 may have had the schema file of its store.
        if (
            path.startswith("state/")
            and path.endswith("/_metadata/schema")
            and not left.exists(path)
        ):
            _put(fs, left.real(path), again.checkpoint.read(path))
    left.refresh()
    root = f"file:{again.checkpoint.path}"
    states = {number: operator_state(again, number, last, root) for number in again.operators}
    return _Replay(states, _how(first, batch))


def _how(first: int, batch: int) -> str:
    if first == batch:
        return "in one micro-batch"
    if first == 0:
        return f"in the recorded micro-batches 0 to {batch}"
    return f"in one micro-batch up to batch {first}, and in the recorded ones after it"


def _put(fs: FileSystem, path: str, data: bytes) -> None:
    make_directories(fs, os.path.dirname(path))
    write_durably(fs, path, data)


def _without_watermark(plan: MetadataLogFile) -> MetadataLogFile:
    return plan._replace(metadata={**plan.metadata, "batchWatermarkMs": 0})


def _compare(tables: StateTables, plain: Batches, batch: int, replay: _Replay) -> _Comparison:
    """Compare the rebuilt state with the state partitions that can be read."""
    lost, wrong = dict[int, list[int]](), dict[int, list[int]]()
    equal, digests = 0, {}
    root = f"file:{plain.checkpoint.path}"
    for operator, state in replay.states.items():
        old = tables.digests_or_faults(operator_state(plain, operator, batch, root))
        digests[operator] = new = tables.digests(state)
        gone = [number for number, each in enumerate(old) if isinstance(each, str)]
        different = [
            number
            for number in range(max(len(old), len(new)))
            if number not in gone and old[number : number + 1] != new[number : number + 1]
        ]
        if gone:
            lost[operator] = gone
        if different:
            wrong[operator] = different
        equal += len(old) - len(gone)
    return _Comparison(lost, wrong, equal, digests)
