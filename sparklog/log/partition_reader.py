"""Read a partition without a lock and without writes, safely beside a writer and its undo steps.

The end is fixed before a read, at or below the published watermark; no byte behind the end is used.
Every batch must pass its CRC and begin at the expected offset. Anything else (a deleted file, a
short read, a gap) raises StaleReadError, and damage raises DataCorruptionError. Callers list the
segments again and retry before they trust either error. Source: sparklog/logdir/PROTOCOL.md,
"Read".
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparklog.errors import DataCorruptionError, SparklogError
from sparklog.format.batch import CONTROL, LOG_OVERHEAD, OFFSET_MAX
from sparklog.format.records import Decoder
from sparklog.format.scan import Batches, misplaced_rows, scan
from sparklog.log.aborted_transactions import AbortedFilter, AbortedTxn, TransactionIndexes
from sparklog.log.batch_windows import Window, abort_reader, walk
from sparklog.log.offset_lookup import Lookup
from sparklog.log.producer_state import ProducerState
from sparklog.log.producer_state_loading import load_producer_state, replay_batches
from sparklog.log.time_lookup import TimeLookup
from sparklog.storage.segments import (
    PartitionSegments,
    SegmentLog,
    SegmentMetadata,
    StaleReadError,
    SupportsPreadInto,
    is_local_file,
)
from sparklog.storage.view import View

COLUMNS: Final = ("key", "value", "offset", "timestamp", "timestampType", "headers")
FIRST_BYTES: Final = 64 << 10  # the first window, enough for a lookup; later windows grow
MOST_BYTES: Final = 2 << 20  # the largest window: CRC and decoder then find it in the CPU cache
BATCH_BYTES: Final = 8 << 20  # decoded bytes at which an Arrow batch is returned
GATHERED_BYTES: Final = 64 << 10  # bytes of log from small segments per Arrow batch
_NO_LIMIT: Final = 2**63 - 1
_SPAN_MIN: Final = 4 << 10  # bytes: the distance of index entries, and the next batch's header
Table = NDArray[Any]
Allocate = Callable[[int], memoryview]
"""Returns memory of that many bytes with undefined contents."""


class ReadBudget:
    """The remaining number of bytes that a read may return. Batches are not cut.

    Attributes:
        left_bytes: The remaining number of bytes.
        at_least_one: Whether the next batch is returned even if it is larger. True only for the
            first batch of a request.
        full: Whether the next batch does not fit.

    Source: ReplicaManager.readFromLog (minOneMessage).
    """

    def __init__(self, max_bytes: int, *, at_least_one: bool = True) -> None:
        self.left_bytes = max_bytes
        self.at_least_one = at_least_one
        self.full = False  # the next batch doesn't fit

    def fits(self, size: int) -> bool:
        """Return whether a batch of `size` bytes may be returned next."""
        return self.at_least_one or size <= self.left_bytes

    def span(self, most: int) -> int:
        """Return how many bytes to read next, if the sizes of the batches are unknown.

        At most `most`, and little more than the budget.
        """
        return min(most, self.left_bytes + _SPAN_MIN)

    def take_bytes(self, size: int) -> None:
        """Subtract `size` bytes, which must fit, from the budget."""
        self.left_bytes -= size
        self.at_least_one = False

    def take(self, table: Table) -> Table:
        """Return the leading batches that fit, and subtract their size from the budget."""
        fitting = int(table["size"].cumsum().searchsorted(self.left_bytes, side="right"))
        taken = table[: max(fitting, 1 if self.at_least_one else 0)]
        if len(taken):
            self.left_bytes = max(self.left_bytes - int(taken["size"].sum()), 0)
            self.at_least_one = False
        self.full = not (self.left_bytes or self.at_least_one) or len(taken) < len(table)
        return taken


@dataclass(frozen=True, slots=True)
class StreamedBatches:
    """Undecoded batches of a partition.

    Attributes:
        window: The batches: a table with a row per batch, and the bytes.
        aborted: Mask of the batches that are data of an aborted transaction. All False for
            read_uncommitted.
    """

    window: Window
    aborted: NDArray[np.bool_]


def reader_of(
    view: View, topic: str, partition: int, topic_id: str | None = None
) -> "PartitionReader":
    """Return the cached reader of a partition, or a new reader if `topic_id` has changed.

    Raises:
        UnknownTopicError: The topic or partition does not exist.
        PartitionOfflineError: The partition is offline.
    """
    return view.of_partition(topic, partition, PartitionReader, topic_id)


class PartitionReader:
    """Reads the records or batches of a partition. Thread-safe.

    Segments and indexes are cached until `refresh`.
    """

    def __init__(self, segments: PartitionSegments) -> None:
        self.segments = segments
        self._lookup = Lookup(segments)
        self._times = TimeLookup(self._lookup)
        self._producers: ProducerState | None = None
        self._remembering = threading.Lock()  # guards the cached times and producers

    @property
    def where(self) -> str:
        """The location of the partition, for messages."""
        return self.segments.where

    def refresh(self) -> None:
        """Drop cached data; the next call lists the segments."""
        self._lookup.refresh()
        self._times.refresh()
        self._producers = None

    def _relist(self) -> None:
        """List the segments again.

        In a compacted log, whose closed segments can be replaced, all caches are dropped.
        """
        if self.segments.gaps:
            self.refresh()
        else:
            self._lookup.refresh()

    def local_file(self, offset: int) -> tuple[int, SupportsPreadInto | None]:
        """Return the base offset of the segment that contains `offset`, and its open log file.

        The file is None if the segment is remote.

        Raises:
            StaleReadError: The segment does not exist any more.
        """
        base = self._lookup.floor(offset)
        file = self._lookup.log(base)
        return base, file if is_local_file(file) else None

    def first_base(self) -> int:
        """Return the base offset of the first segment, as listed."""
        return self._lookup.bases[0]

    def metadata(self) -> list[SegmentMetadata]:
        """Return the segments, which are listed again."""
        self.refresh()
        return self.segments.metadata()

    def leader_epoch(self) -> int | None:
        """Return the newest leader epoch, or None before the first epoch."""
        entries = self.segments.leader_epochs()
        return entries[-1][0] if entries else None

    def leader_epoch_of(self, offset: int) -> int | None:
        """Return the leader epoch of the batch with `offset`; None after compaction removed it."""
        windows = self._windows(offset, offset + 1, None)
        return next((int(window.batches.table["leader_epoch"][0]) for window in windows), None)

    def valid_end(self) -> int:
        """Return the offset after the last batch of the log with a valid CRC.

        For logs without a watermark. The last segment is read up to the first damage.
        """
        self._relist()
        end = self._lookup.bases[-1]
        for window in walk(self._lookup.log(end)):
            if len(window.batches):
                end = int(window.batches.table["last_offset"][-1]) + 1
        return end

    def last_stable_offset(self, end: int) -> int:
        """Return the first offset of the oldest transaction that is open at `end`, or `end`."""
        with self._remembering:
            return self._last_stable_offset(end)

    def _last_stable_offset(self, end: int) -> int:
        known = self._producers
        if known is None or known.end > end:
            known = load_producer_state(
                self.segments, end, log_start=0, now=0, expiration_ms=_NO_LIMIT
            )
            self._producers = known
        elif known.end < end:
            self._relist()  # drops the producers in a compacted log, but they remain valid
            self._producers = known
            replay_batches(self.segments, known, end, bases=self._lookup.bases)
        return known.last_stable_offset()

    def aborted(self, start: int, end: int) -> list[AbortedTxn]:
        """Return the aborted transactions that overlap [start, end)."""
        return TransactionIndexes(self._lookup).aborted(start, end)

    def offset_for_time(self, timestamp: int, start: int, end: int) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the first record at or after `timestamp` (ms), or None.

        As in Kafka, only the first segment with a largest timestamp of at least `timestamp` is
        searched.
        """
        with self._remembering:
            return self._times.find(timestamp, start, end)

    def offset_of_max_timestamp(self, start: int, end: int) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the first record with the largest timestamp."""
        with self._remembering:
            return self._times.latest(start, end)

    def read(
        self,
        start: int,
        end: int,
        *,
        columns: Iterable[str] | None = None,
        isolation: str = "read_uncommitted",
        max_bytes: int | None = None,
        max_records: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records with start <= offset < end; for the arguments see `read_from`."""
        batches = self.read_from(
            start,
            end,
            columns=columns,
            isolation=isolation,
            max_bytes=max_bytes,
            max_records=max_records,
        )
        return (rows for rows, _ in batches if rows.num_rows)

    def read_from(
        self,
        start: int,
        end: int,
        *,
        columns: Iterable[str] | None = None,
        isolation: str = "read_uncommitted",
        max_bytes: int | None = None,
        max_records: int | None = None,
    ) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Yield (records, next offset) in the memory of a few windows.

        Args:
            start: The first offset to read.
            end: The offset at which the read ends. At or below the high watermark; for
                read_committed, at or below the last stable offset.
            columns: Some of COLUMNS, by default all; other names are ignored. "offset" is always
                included.
            isolation: "read_uncommitted" or "read_committed".
            max_bytes: Limits the bytes of log that are returned. The first batch is returned even
                if it is larger.
            max_records: Limits the number of records.

        Raises:
            StaleReadError: The segments have changed; see the module's docstring.
            DataCorruptionError: A batch is damaged.
        """
        # The offset of the last record tells where to continue.
        names = None if columns is None else [c for c in COLUMNS if c == "offset" or c in columns]
        dropped = None
        if self._lookup.gaps:
            self.refresh()  # segments may be replaced; batches must match the aborted transactions
        if isolation == "read_committed":
            dropped = AbortedFilter(self.aborted(start, end))
        decoder = Decoder(names, max_bytes=BATCH_BYTES)
        left = _NO_LIMIT if max_records is None else max_records
        windows = self._windows(start, end, None if max_bytes is None else ReadBudget(max_bytes))
        for rows, following in _decode(decoder, windows, dropped, start, end, self.where):
            if rows.num_rows >= left:
                rows = rows.slice(0, left)
                yield rows, _behind(rows)
                return
            left -= rows.num_rows
            yield rows, following

    def batches(
        self, start: int, end: int, budget: ReadBudget, allocate: Allocate | None = None
    ) -> Iterator[Window]:
        """Yield windows of undecoded batches, beginning with the batch that contains `start`.

        A window's table contains only the batches to return, in the order of its data, as many as
        `budget` allows. No batch reaches past `end`.

        Args:
            start: The first offset to read.
            end: See `read_from`.
            budget: Limits the bytes that are returned.
            allocate: Returns memory to read files into. By default each window has its own.

        Raises:
            StaleReadError: The segments have changed; see the module's docstring.
            DataCorruptionError: A batch is damaged.
        """
        for window in self._windows(start, end, budget, MOST_BYTES, allocate):
            table = window.batches.table
            within = table[table["last_offset"] < end]
            if len(within):
                yield Window(window.data, window.position, _replaced(window.batches, within))
            if len(within) < len(table):
                return

    def touching(
        self, start: int, end: int, *, isolation: str = "read_uncommitted"
    ) -> Iterator[StreamedBatches]:
        """Yield the undecoded batches that contain offsets of [start, end), with verified CRCs.

        Args:
            start: The first offset.
            end: See `read_from`.
            isolation: Only "read_committed" determines which batches are aborted.

        Raises:
            StaleReadError: The segments have changed; see the module's docstring.
            DataCorruptionError: A batch is damaged.

        Cost:
            Memory of a window: MOST_BYTES, or a single larger batch.
        """
        if self._lookup.gaps:
            self.refresh()  # as `read_from`
        dropped = None
        if isolation == "read_committed":
            dropped = AbortedFilter(self.aborted(start, end))
        for window in self._windows(start, end, None):
            table = window.batches.table
            aborted = np.zeros(len(table), np.bool_)
            if dropped is not None:
                aborted = dropped.aborted(table, abort_reader(window, self.where))
            yield StreamedBatches(window, aborted)

    def _windows(
        self,
        start: int,
        end: int,
        budget: ReadBudget | None,
        first_bytes: int = FIRST_BYTES,
        allocate: Allocate | None = None,
    ) -> Iterator[Window]:
        """Yield windows whose tables contain exactly the batches with offsets of [start, end).

        Args:
            start: The first offset.
            end: See `read_from`.
            budget: The remaining size, if it is limited; the batches are charged to it.
            first_bytes: The size of the first window of each segment; later windows are larger.
            allocate: Returns memory to read files into.
        """
        # A loop over segments by base offset, not over a list of them: the segments may be rolled,
        # deleted or compacted between two windows.
        at = start
        base = self._lookup.floor(at) if at < end else 0
        bare = -1  # the offset from which the present files contained nothing
        while at < end:
            try:
                for window in self._segment(base, at, end, budget, first_bytes, allocate):
                    table = window.batches.table
                    if budget is not None:
                        table = budget.take(table)
                    if len(table):
                        yield Window(window.data, window.position, _replaced(window.batches, table))
                        at = int(table["last_offset"][-1]) + 1
                    if budget is not None and budget.full:
                        return
                if budget is not None and budget.full:
                    return
            except DataCorruptionError as error:  # of the log, or of a remote segment's objects
                raise _damage(error, at, self._lookup.following(base) or end) from error
            if at < end:
                following = self._next(base, at, end)
                if following is not None:
                    base, at = following, max(at, following)
                elif bare == at:
                    return
                else:  # a replacement may have moved records into this segment: look again
                    bare, base = at, self._lookup.floor(at)

    def _next(self, base: int, at: int, end: int) -> int | None:
        """Return the base of the segment after `base`, to continue at offset `at`.

        Returns None if no record of [at, end) is left, because of compaction.

        Raises:
            StaleReadError: The next segment is missing, or does not start at `at`.
        """
        following = self._lookup.following(base)
        if following != at or at >= end:  # perhaps rolled, undone or compacted since the listing
            self._relist()
            following = self._lookup.following(base)
        while self._lookup.gaps and following is not None and following < at:
            # Skip a segment that was already replaced by a segment that reaches further.
            following = self._lookup.following(following)
        if self._lookup.gaps and following is not None and following >= end:
            return None
        if self._lookup.gaps and following is None and self._reaches(end):
            return None
        if following is None or following >= end:
            raise StaleReadError(f"{self.where} ends at offset {at}, but should end at {end}")
        if following < at or (following > at and not self._lookup.gaps):
            raise StaleReadError(
                f"{self.where}: expected offset {at}, but the next segment has base offset "
                f"{following}"
            )
        return following

    def _reaches(self, end: int) -> bool:
        """Return True if the last segment is closed and ends at or above `end`, as in a store."""
        last = self.segments.metadata()[-1].end
        return last is not None and last >= end

    def _segment(
        self,
        base: int,
        at: int,
        end: int,
        budget: ReadBudget | None,
        first_bytes: int,
        allocate: Allocate | None,
    ) -> Iterator[Window]:
        """Yield the windows of a segment that contain offsets of [at, end).

        Args:
            base: The base offset of the segment.
            at: The first offset to read.
            end: The offset at which the read ends.
            budget: The remaining size, if it is limited. No more is read than it allows, and
                `budget.full` is set if it ended the read.
            first_bytes: The size of the first window; later windows are larger.
            allocate: Returns memory to read files into.
        """
        file, following = self._lookup.log(base), self._lookup.following(base)
        limit = file.size()
        position = self._lookup.position(base, at, end)
        step = first_bytes if budget is None else budget.span(first_bytes)
        # An index entry is only a hint: indexes have no checksum, so the batch there is checked.
        hinted, span = position > 0, step
        while at < end and position < limit:
            data = _read_bytes(file, min(span, limit - position), position, allocate)
            found = scan(data, path=file.path, position=position)
            if hinted and not _is_true(found, data, position, limit, at):
                # A wrong index entry, such as a flipped bit: read the segment from its beginning.
                hinted, position, span = False, 0, step
                continue
            # Drop the rows behind the batch that reaches `end`: a crash can leave anything there.
            reached = np.flatnonzero(found.table["last_offset"] >= end - 1)
            table = found.table[: int(reached[0]) + 1] if len(reached) else found.table
            useful = table[(table["last_offset"] >= at) & (table["base_offset"] < end)]
            if len(useful):
                self._check_order(useful, at, file.path)
                fault = None
                if following is not None and int(useful["last_offset"][-1]) + 1 >= following:
                    useful, fault = self._up_to_segment(file, useful, following, limit)
                if len(useful):
                    at = int(useful["last_offset"][-1]) + 1
                    yield Window(data, position, _replaced(found, useful))
                if fault is not None:
                    raise fault
            # Behind `end` a writer may be appending, so an invalid batch there is no damage.
            if found.error is not None and at < end:
                raise found.error
            if found.end == position:  # no complete batch: a larger one, or a torn one
                span = _size_of(data)
                if not len(data) < span <= limit - position:
                    return  # a torn batch: no further batches in this segment
                if budget is not None and not budget.fits(span):
                    budget.full = True
                    return
            else:
                size = _size_of(data, found.end - position)
                if budget is not None and size and not budget.fits(size):
                    budget.full = True
                    return
                step = min(step * 4, MOST_BYTES)
                step = step if budget is None else budget.span(step)
                hinted, span, position = False, step, found.end

    def _up_to_segment(
        self, file: SegmentLog, table: Table, following: int, limit: int
    ) -> tuple[Table, StaleReadError | None]:
        """Check that a segment ends where the next segment begins.

        If a segment continues with offsets of the next segment, it belongs to another log or was
        appended to, or the next segment was undone. Compacted logs are not checked, because a
        segment can span the segments that it replaces.

        Args:
            file: The segment's log.
            table: Batches up to the segment's end.
            following: The base offset of the next segment.
            limit: The size of the file.

        Returns:
            The batches before the overlap, and the error; or all batches and None.

        Cost: no read, if the file ends with these batches.
        """
        if self._lookup.gaps:
            return table, None
        last = int(np.argmax(table["last_offset"] + 1 >= following))
        behind = int(table["position"][last] + table["size"][last])
        position, first = int(table["position"][last]), int(table["base_offset"][last])
        if int(table["last_offset"][last]) < following:  # check the bytes behind the last batch
            head = file.pread(8, behind) if behind < limit else b""
            position, first = behind, int.from_bytes(head, "big") if len(head) == 8 else -1
            if first < following:
                return table, None
        return table[:last], StaleReadError(
            f"{file.path} at byte {position}: the batch at offset {first} overlaps the next "
            f"segment {following}"
        )

    def _check_order(self, table: Table, at: int, path: str) -> None:
        first = table["base_offset"]
        wrong = misplaced_rows(table, at, OFFSET_MAX if self._lookup.gaps else 0)
        wrong[0] = not self._lookup.gaps and int(first[0]) > at
        if wrong.any():
            row = int(wrong.nonzero()[0][0])
            expected = int(table["last_offset"][row - 1]) + 1 if row else at
            raise StaleReadError(
                f"{path} at byte {table['position'][row]}: expected offset {expected}, but the "
                f"batch has base offset {first[row]}"
            )


def _read_bytes(
    file: SegmentLog, size: int, at: int, allocate: Allocate | None
) -> bytes | memoryview:
    if allocate is None or not is_local_file(file):
        return file.pread(size, at)
    buffer = allocate(size)
    return buffer[: file.pread_into(buffer, at)]


def _is_true(found: Batches, data: bytes | memoryview, position: int, limit: int, at: int) -> bool:
    """Return True if the offset index led to a batch at or before offset `at`.

    Args:
        found: The scan of `data`.
        data: The bytes of the file from `position` on.
        position: The position from the index.
        limit: The size of the file.
        at: The offset that is searched.
    """
    if len(found):
        return int(found.table["base_offset"][0]) <= at
    return found.error is None and len(data) < _size_of(data) <= limit - position


def _size_of(data: bytes | memoryview, at: int = 0) -> int:
    """Return the size of the batch at byte `at` of `data`, or 0 if the length field is cut off."""
    if len(data) < at + LOG_OVERHEAD:
        return 0
    length = data[at + 8 : at + LOG_OVERHEAD]
    return int.from_bytes(length, "big", signed=True) + LOG_OVERHEAD


def _replaced(batches: Batches, table: Table) -> Batches:
    return Batches(table, batches.end, batches.error)


def _damage(error: DataCorruptionError, first: int, end: int) -> DataCorruptionError:
    """Return a copy of the error that names the lost offsets [first, end)."""
    return DataCorruptionError(
        error.reason, path=error.path, position=error.position, first=first, end=end
    )


def _decode(
    decoder: Decoder,
    windows: Iterable[Window],
    dropped: AbortedFilter | None,
    first: int,
    end: int,
    path: str,
) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Yield (records, next offset) of decoded windows, for every GATHERED_BYTES of log.

    So small segments are combined, and the records before damage are yielded before the error is
    raised. A pair has no records if all its batches were control batches or aborted.

    Args:
        decoder: Decodes the batches.
        windows: The windows to decode.
        dropped: Selects the batches of aborted transactions, which are left out; None for none.
        first: The first offset.
        end: The offset after the last offset.
        path: The partition, for errors.
    """
    taken, reached = 0, first
    try:
        for window in windows:
            table = _wanted(window, dropped, path)
            while len(table):
                done = decoder.add_many(
                    window.data, table, first=first, end=end, path=path, position=window.position
                )
                table = table[done:]
                if len(table):  # the decoder is full
                    rows = decoder.finish()
                    yield rows, _behind(rows)
            reached = min(int(window.batches.table["last_offset"][-1]) + 1, end)
            taken += len(window.data)
            if taken >= GATHERED_BYTES:
                yield decoder.finish(), reached
                taken = 0
    except (SparklogError, FileNotFoundError):
        if decoder.rows:
            rows = decoder.finish()
            yield rows, _behind(rows)
        raise
    if taken:
        yield decoder.finish(), reached


def _wanted(window: Window, dropped: AbortedFilter | None, path: str) -> Table:
    """Return the batches of a window with records for the reader.

    Control batches, and aborted batches according to `dropped`, are left out.
    """
    table = window.batches.table
    if dropped is not None:
        table = dropped.keep(table, abort_reader(window, path))
    records: Table = table[(table["attributes"] & CONTROL) == 0]
    return records


def _behind(rows: pa.RecordBatch) -> int:
    return int(rows.column("offset")[-1].as_py()) + 1

