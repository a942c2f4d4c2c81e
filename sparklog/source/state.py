"""The readers of a checkpoint's state: `format("sparklog")` with option stateOperator.

An offset is {"batch": N, "planned": ms}: the first batch of the checkpoint's query that is not read
yet, and when the batch before was planned. A batch that is computed again after a reset is planned
later, so the stream detects that it has read abandoned batches. With an offset without "planned"
(the first offset, and offsets of older versions of sparklog) the stream can't detect this. Only
committed batches are read. Each task reads a state partition.
"""

import os
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from sparklog.checkpoint.change_feed.change_files import ChangeFile, StoreChanges
from sparklog.checkpoint.change_feed.change_reader import ChangeReader, changes_schema
from sparklog.checkpoint.files import Checkpoint
from sparklog.checkpoint.spark_files.state_schema import StateStoreSchema, store_schema
from sparklog.errors import InvalidRequestError
from sparklog.lru_cache import LruCache
from sparklog.source.data_loss import DataLossPolicy
from sparklog.source.offsets import EARLIEST, LATEST
from sparklog.source.schema import arrow_schema, check_schema, fit
from sparklog.source.state_options import StateOptions
from sparklog.spark_errors import in_worker
from sparklog.spark_versions import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

Json = dict[str, Any]
_BATCH: Final = "batch"
_PLANNED: Final = "planned"
_CHECKPOINTS_MAX: Final = 64
_checkpoints: LruCache[tuple[int, str], Checkpoint] = LruCache(_CHECKPOINTS_MAX)  # for tasks


def state_schema(options: StateOptions) -> StructType:
    """Return the columns of a state store, from the schema in the checkpoint.

    Raises:
        InvalidRequestError: The checkpoint, the operator or the store does not exist.
    """
    checkpoint = Checkpoint.open(options.path or "")
    schema = store_schema(checkpoint, options.operator, options.store)
    return from_arrow_schema(changes_schema(schema, options.column_family))


@dataclass(frozen=True, slots=True)
class StateRange:
    """The range of a task: the changes of some batches in a state partition."""

    files: tuple[ChangeFile, ...]


class _StateChanges:
    """The common part of both readers. Pickled for the tasks without the opened checkpoint."""

    def __init__(self, options: StateOptions, schema: StructType) -> None:
        checkpoint = Checkpoint.open(options.path or "")
        self._path = checkpoint.path
        self._options = options
        self._store: StateStoreSchema = store_schema(checkpoint, options.operator, options.store)
        own = from_arrow_schema(changes_schema(self._store, options.column_family))
        check_schema(schema, own)
        self._schema = arrow_schema(schema)
        self._loss = DataLossPolicy(options.fail_on_data_loss)
        self._changes: StoreChanges | None = None

    def __getstate__(self) -> Json:
        # Tasks look up only their own files, so the listing of the checkpoint is not sent to them.
        return {**self.__dict__, "_changes": None}

    @property
    def changes(self) -> StoreChanges:
        """The changes of the opened checkpoint, opened on first use; see StreamReader."""
        if self._changes is None:
            options = self._options
            checkpoint = Checkpoint.open(self._path)
            self._changes = StoreChanges(checkpoint, options.operator, options.store)
        return self._changes

    def resolve(self, bound: int) -> int:
        """Return a start or end as a batch number."""
        if bound == LATEST:
            return self.changes.end()
        return self.changes.available_batches()[0] if bound == EARLIEST else bound

    def position(self, batch: int) -> Json:
        """Return the offset of a reader that has read all batches before `batch`."""
        planned_ms = self.changes.planned_ms(batch - 1)
        return {_BATCH: batch} | ({} if planned_ms is None else {_PLANNED: planned_ms})

    def first_reset_batch(self, position: Json) -> int | None:
        """Report that a reset abandoned batches that were read.

        Returns:
            The first abandoned batch, or None if there was no such reset.

        Raises:
            OffsetOutOfRangeError: Such a batch was abandoned, and failOnDataLoss is true.
        """
        if _PLANNED not in position:
            return None
        batch = int(position[_BATCH])
        first = self.changes.first_recomputed(batch, int(position[_PLANNED]))
        if first is not None:
            self._loss.reset_batches(self.changes.name, first, batch)
        return first

    def plan(self, start: int, end: int) -> list[InputPartition]:
        """Return a task per state partition with changes in batches [start, end).

        Raises:
            OffsetOutOfRangeError: Changes are missing, and failOnDataLoss is true.
        """
        high = self.changes.end()
        if end > high:
            why = f"the last committed batch is {high - 1}: the query was reset since"
            self._loss.lost_batches(self.changes.name, max(start, high), end, why, held=(0, high))
        end = min(end, high)
        if start >= end:
            return []
        first, files = self.changes.files(start, end)
        if first > start:
            low = self.changes.available_batches()[0]
            why = f"the first batch with retained changes is {low}"
            self._loss.lost_batches(self.changes.name, start, first, why, held=(low, high))
        by_partition: dict[int, list[ChangeFile]] = {}
        for file in files:
            by_partition.setdefault(file.partition, []).append(file)
        return [InputPartition(StateRange(tuple(f))) for _, f in sorted(by_partition.items())]

    def read(self, piece: StateRange) -> Iterator[pa.RecordBatch]:
        """Yield the changes of a range. Runs in an executor.

        Handles data loss by failOnDataLoss.
        """
        checkpoint = _checkpoint(self._path)
        reader = ChangeReader(checkpoint, self._store, self._options.column_family)
        for file in piece.files:
            # The cached checkpoint has no listing, so each file is looked up just before it is
            # read.
            checkpoint.find(file.path)
            try:
                for batch in reader.read(file):
                    yield fit(batch, self._schema)
            except FileNotFoundError:  # Spark has deleted the file
                options = self._options
                name = f"operator {options.operator}, store {options.store} of {self._path}"
                why = f"{file.path} was removed since they were planned"
                held = file.batch + 1, file.batch + 1
                self._loss.lost_batches(name, file.batch, file.batch + 1, why, held=held)


@in_worker
class StateBatchReader(DataSourceReader):
    """Reads the changes of a checkpoint's state once, for `spark.read`."""

    def __init__(self, options: StateOptions, schema: StructType) -> None:
        self._options = options
        self._state = _StateChanges(options, schema)

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the read up to the present end."""
        start = self._state.resolve(self._options.start(streaming=False))
        return self._state.plan(start, self._state.resolve(self._options.end()))

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Read a task's changes in an executor. Spark passes None when there are no changes."""
        piece: Any = None if partition is None else partition.value  # None: Spark 4.0 and 4.1
        return iter(()) if piece is None else self._state.read(piece)


@in_worker
class StateStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the changes of a checkpoint's state, for `spark.readStream`."""

    def __init__(self, options: StateOptions, schema: StructType) -> None:
        self._options = options
        self._state = _StateChanges(options, schema)
        self._target: int | None = None  # trigger AvailableNow: the end of the query

    def initialOffset(self) -> Json:
        """Return the start of a new query."""
        return {_BATCH: self._state.resolve(self._options.start(streaming=True))}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return a limit if an option limits the micro-batch. `latestOffset` applies the option."""
        # Spark passes this value back to `latestOffset`; ReadAllAvailable would mean no limit.
        limited = self._options.max_batches_per_trigger is not None
        return ReadMaxRows(2**63 - 1) if limited else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Store the present end, which the query does not pass."""
        self._target = self._state.changes.end()

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        """Return the end of the next micro-batch; after a reset an earlier offset, without rows.

        `start` is {} if it is unknown (see `CalledReader`).
        """
        back = self._state.first_reset_batch(start)
        if back is not None:
            return self._state.position(back)
        begin, end = int(start.get(_BATCH, 0)), self._state.changes.end()
        if end < begin:
            return start  # wait: startingOffsets is in the future, or the query was reset
        if self._target is not None:
            end = max(begin, min(end, self._target))
        most = self._options.max_batches_per_trigger
        if most is not None and not isinstance(limit, ReadAllAvailable):
            end = min(end, begin + most)
        return start if end == begin else self._state.position(end)

    def reportLatestOffset(self) -> Json:
        """Return the checkpoint's end, for the query's progress."""
        return {_BATCH: self._state.changes.end()}

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        """Plan a micro-batch, also a replayed micro-batch that was planned before a reset."""
        first, last = int(start[_BATCH]), int(end[_BATCH])
        back = self._state.first_reset_batch(end) if first < last else None
        return self._state.plan(first, last if back is None else min(last, back))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a task's changes. Runs in an executor."""
        piece: Any = partition.value
        return iter(()) if piece is None else self._state.read(piece)

    def commit(self, end: Json) -> None:
        """No-op: the query's own checkpoint stores the offsets."""

    def stop(self) -> None:
        """No-op: there are no resources to release."""


def _checkpoint(path: str) -> Checkpoint:
    """Return this process's cached checkpoint. Each file is looked up when it is read."""
    return _checkpoints.get_or_make((os.getpid(), path), partial(_seen_checkpoint, path))


def _seen_checkpoint(path: str) -> Checkpoint:
    if not os.path.isdir(path):
        raise InvalidRequestError(
            f"the executor on host {socket.gethostname()} can't see the checkpoint {path}: "
            "every executor must have its disk"
        )
    return Checkpoint.without_listing(path)
