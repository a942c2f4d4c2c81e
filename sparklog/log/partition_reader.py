"""Reads one partition: no lock, no writes, any process. Safe beside a writer and its undo.

The end is fixed before a read and at or below the published watermark; no byte from it on is
kept. Every batch passes its CRC and begins where it is expected. Whatever else is found (a file
that is gone, a short read, a gap) raises StaleReadError, damage raises DataCorruptionError; the
caller lists anew and tries again before it believes either. Source: PROTOCOL, "Read".
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparklog.errors import DataCorruptionError, SparklogError
from sparklog.format.batch import CONTROL, LOG_OVERHEAD
from sparklog.format.records import Decoder
from sparklog.format.scan import Batches, scan
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
FIRST_BYTES: Final = 64 << 10  # the first window: a look-up needs no more; then they grow
MOST_BYTES: Final = 2 << 20  # the largest window: CRC and decoder find it in the cache
BATCH_BYTES: Final = 8 << 20  # decoded bytes at which a record batch is given out
GATHERED_BYTES: Final = 64 << 10  # bytes of log from small segments that come in one record batch
_NO_LIMIT: Final = 2**63 - 1
_SPAN_MIN: Final = 4 << 10  # bytes: what an index is off by, and the header of what comes next
Table = NDArray[Any]
Allocate = Callable[[int], memoryview]
"""Gives so many bytes of memory, whatever they hold."""


class ReadBudget:
    """How many bytes of whole batches a read may give out; used up by what it gives.

    `at_least_one`: the first batch comes even if it is larger. Source: ReplicaManager.readFromLog
    (minOneMessage), which asks for that once a request.
    """

    def __init__(self, max_bytes: int, *, at_least_one: bool = True) -> None:
        self.left_bytes = max_bytes
        self.at_least_one = at_least_one
        self.full = False  # the next batch doesn't fit

    def fits(self, size: int) -> bool:
        """Tell whether a batch of `size` bytes may come next."""
        return self.at_least_one or size <= self.left_bytes

    def span(self, most: int) -> int:
        """Return how many bytes to read, `most` at most, where nothing is known of them yet."""
        return min(most, self.left_bytes + _SPAN_MIN)

    def take_bytes(self, size: int) -> None:
        """Take whole batches of `size` bytes, which fit."""
        self.left_bytes -= size
        self.at_least_one = False

    def take(self, table: Table) -> Table:
        """Return the leading batches that fit."""
        fitting = int(table["size"].cumsum().searchsorted(self.left_bytes, side="right"))
        taken = table[: max(fitting, 1 if self.at_least_one else 0)]
        if len(taken):
            self.left_bytes = max(self.left_bytes - int(taken["size"].sum()), 0)
            self.at_least_one = False
        self.full = not (self.left_bytes or self.at_least_one) or len(taken) < len(table)
        return taken


@dataclass(frozen=True, slots=True)
class StreamedBatches:
    """Batches as they lie in a log: `window`'s table names them in its data.

    `aborted`: which of them are data of an aborted transaction, as far as that was asked for.
    """

    window: Window
    aborted: NDArray[np.bool_]


def reader_of(
    view: View, topic: str, partition: int, topic_id: str | None = None
) -> "PartitionReader":
    """Return the (kept) reader of a partition; a fresh one if that is not of `topic_id`.

    Raises UnknownTopicError, PartitionOfflineError.
    """
    return view.of_partition(topic, partition, PartitionReader, topic_id)


class PartitionReader:
    """Look-ups are cached until `refresh`. Threads may share it."""

    def __init__(self, segments: PartitionSegments) -> None:
        self.segments = segments
        self._lookup = Lookup(segments)
        self._times = TimeLookup(self._lookup)
        self._producers: ProducerState | None = None
        self._remembering = threading.Lock()  # around what calls add to: times and producers

    @property
    def where(self) -> str:
        """Where the partition lies, for messages."""
        return self.segments.where

    def refresh(self) -> None:
        """Drop what is cached; the next call lists the directory."""
        self._lookup.refresh()
        self._times.refresh()
        self._producers = None

    def _relist(self) -> None:
        """List anew. Where segments are swapped, nothing that is known of their files holds."""
        if self.segments.gaps:
            self.refresh()
        else:
            self._lookup.refresh()

    def local_file(self, offset: int) -> tuple[int, SupportsPreadInto | None]:
        """Return the base of the segment that holds an offset, and its log if it is a local file.

        Raises:
            StaleReadError: There is no such segment any more.
        """
        base = self._lookup.floor(offset)
        file = self._lookup.log(base)
        return base, file if is_local_file(file) else None

    def first_base(self) -> int:
        """The first segment's base offset."""
        return self._lookup.bases[0]

    def metadata(self) -> list[SegmentMetadata]:
        """Return the segments, listed now."""
        self.refresh()
        return self.segments.metadata()

    def leader_epoch(self) -> int | None:
        """The newest leader epoch; None if the partition knows none yet."""
        entries = self.segments.leader_epochs()
        return entries[-1][0] if entries else None

    def leader_epoch_of(self, offset: int) -> int | None:
        """The leader epoch of the batch that holds `offset`; None where compaction removed it."""
        found = self._pieces(offset, offset + 1, None)
        return next((int(window.batches.table["leader_epoch"][0]) for window in found), None)

    def valid_end(self) -> int:
        """The end of the last segment's valid batches, by CRC. For logs without a watermark."""
        self._relist()
        end = self._lookup.bases[-1]
        for window in walk(self._lookup.log(end)):
            if len(window.batches):
                end = int(window.batches.table["last_offset"][-1]) + 1
        return end

    def last_stable_offset(self, end: int) -> int:
        """The first offset of the oldest transaction open at `end`, else `end`."""
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
            self._relist()
            self._producers = known
            replay_batches(self.segments, known, end, bases=self._lookup.bases)
        return known.last_stable_offset()

    def aborted(self, start: int, end: int) -> list[AbortedTxn]:
        """Return the aborted transactions that touch [start, end)."""
        return TransactionIndexes(self._lookup).aborted(start, end)

    def offset_for_time(self, timestamp: int, start: int, end: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record at or after `timestamp` (ms), as Kafka finds it.

        The first segment that reaches the time answers, or nobody: None.
        """
        with self._remembering:
            return self._times.find(timestamp, start, end)

    def offset_of_max_timestamp(self, start: int, end: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record with the log's largest timestamp."""
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
        """Yield the records with start <= offset < end. See `read_from`."""
        found = self.read_from(
            start,
            end,
            columns=columns,
            isolation=isolation,
            max_bytes=max_bytes,
            max_records=max_records,
        )
        return (rows for rows, _ in found if rows.num_rows)

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
        """Yield (records, offset to go on from); memory stays at a few windows.

        Args:
            end: at or below the watermark; for read_committed at or below the last stable offset.
            columns: some of COLUMNS, all by default; others are ignored, "offset" always comes.
            max_bytes: bytes of log; the first batch comes even if it is larger.
        Raises: StaleReadError, DataCorruptionError: see the module's text.
        """
        names = None if columns is None else [c for c in COLUMNS if c == "offset" or c in columns]
        dropped = None
        if self._lookup.gaps:
            self.refresh()  # swapped segments; and no log older than its aborted transactions
        if isolation == "read_committed":
            dropped = AbortedFilter(self.aborted(start, end))
        decoder = Decoder(names, max_bytes=BATCH_BYTES)
        left = _NO_LIMIT if max_records is None else max_records
        pieces = self._pieces(start, end, None if max_bytes is None else ReadBudget(max_bytes))
        for rows, following in _decode(decoder, pieces, dropped, start, end, self.where):
            if rows.num_rows >= left:
                rows = rows.slice(0, left)
                yield rows, _behind(rows)
                return
            left -= rows.num_rows
            yield rows, following

    def batches(
        self, start: int, end: int, budget: ReadBudget, allocate: Allocate | None = None
    ) -> Iterator[Window]:
        """Yield windows of whole batches as they lie, the one that holds `start` first.

        A window's table has just the batches to give out, one behind the other in its data, so
        many as `budget` takes. None reaches past `end`: see `read_from`, which raises the same.
        `allocate`: gives memory to read files into; by default each window has its own.
        """
        for window in self._pieces(start, end, budget, MOST_BYTES, allocate):
            table = window.batches.table
            within = table[table["last_offset"] < end]
            if len(within):
                yield Window(window.data, window.position, _replaced(window.batches, within))
            if len(within) < len(table):
                return

    def touching(
        self, start: int, end: int, *, isolation: str = "read_uncommitted"
    ) -> Iterator[StreamedBatches]:
        """Yield the batches that [start, end) needs, as they lie in the log, CRCs checked.

        `isolation`: whether it is looked which ones are aborted. Memory: a window (MOST_BYTES, or
        one batch). Raises: as `read_from`.
        """
        if self._lookup.gaps:
            self.refresh()  # as `read_from`
        dropped = None
        if isolation == "read_committed":
            dropped = AbortedFilter(self.aborted(start, end))
        for window in self._pieces(start, end, None):
            table = window.batches.table
            aborted = np.zeros(len(table), np.bool_)
            if dropped is not None:
                aborted = dropped.aborted(table, abort_reader(window, self.where))
            yield StreamedBatches(window, aborted)

    def _pieces(
        self,
        start: int,
        end: int,
        budget: ReadBudget | None,
        first_bytes: int = FIRST_BYTES,
        allocate: Allocate | None = None,
    ) -> Iterator[Window]:
        """Yield windows whose tables hold just the batches that [start, end) needs, in order."""
        at = start
        base = self._lookup.floor(at) if at < end else 0
        bare = -1  # the offset from which the present files were found to hold nothing
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
                else:  # a swap may have put what was in other segments into this one: look again
                    bare, base = at, self._lookup.floor(at)

    def _next(self, base: int, at: int, end: int) -> int | None:
        """The segment to go on with; None if compaction left nothing in [at, end) behind `base`."""
        following = self._lookup.following(base)
        if following != at or at >= end:  # rolled, undone or compacted since the listing, perhaps
            self._relist()
            following = self._lookup.following(base)
        while self._lookup.gaps and following is not None and following < at:
            # What a swap has replaced already, by a segment that reaches further: as good as gone.
            following = self._lookup.following(following)
        if self._lookup.gaps and following is not None and following >= end:
            return None
        if self._lookup.gaps and following is None and self._reaches(end):
            return None
        if following is None or following >= end:
            raise StaleReadError(f"{self.where} ends at offset {at}, {end} is expected")
        if following < at or (following > at and not self._lookup.gaps):
            raise StaleReadError(f"{self.where}: segment {following} begins where {at} is expected")
        return following

    def _reaches(self, end: int) -> bool:
        """Whether the last segment is a closed one, in a store, that holds offsets up to `end`."""
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
        """Yield the windows of one segment that hold offsets of [at, end).

        With `budget`, no more is read than it takes, and `budget.full` is set where that ended it.
        """
        file, following = self._lookup.log(base), self._lookup.following(base)
        limit = file.size()
        position = self._lookup.position(base, at, end)
        step = first_bytes if budget is None else budget.span(first_bytes)
        hinted, span = position > 0, step
        while at < end and position < limit:
            data = _read(file, min(span, limit - position), position, allocate)
            found = scan(data, path=file.path, position=position)
            if hinted and not _is_true(found, data, position, limit, at):
                hinted, position, span = False, 0, step
                continue
            table = _up_to(found.table, end)
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
            if found.error is not None and at < end:
                raise found.error
            if found.end == position:
                span = _size_of(data)
                if not len(data) < span <= limit - position:
                    return  # a torn batch: nothing more in this segment
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
        """Check that a segment ends where the one that follows begins.

        If it goes on with offsets of that one, it is another log's or was appended to, or the one
        that follows was undone: then return an error, and the batches without the segment's last.
        Not in a compacted log: there a segment may reach over those that it replaces.

        Args:
            table: Batches up to the segment's end. `limit` is the file's size.
        Cost: nothing, if the file ends with these batches.
        """
        if self._lookup.gaps:
            return table, None
        last = int(np.argmax(table["last_offset"] + 1 >= following))
        behind = int(table["position"][last] + table["size"][last])
        position, first = int(table["position"][last]), int(table["base_offset"][last])
        if int(table["last_offset"][last]) < following:  # it ends there; what lies behind it?
            head = file.pread(8, behind) if behind < limit else b""
            position, first = behind, int.from_bytes(head, "big") if len(head) == 8 else -1
            if first < following:
                return table, None
        return table[:last], StaleReadError(
            f"{file.path} at byte {position}: a batch of offset {first} reaches into segment "
            f"{following}, which follows"
        )

    def _check_order(self, table: Table, at: int, path: str) -> None:
        expected = np.concatenate(([at], table["last_offset"][:-1] + 1))
        first = table["base_offset"]
        wrong = first < expected if self._lookup.gaps else first != expected
        wrong[0] = not self._lookup.gaps and int(first[0]) > at
        if wrong.any():
            row = int(wrong.nonzero()[0][0])
            raise StaleReadError(
                f"{path} at byte {table['position'][row]}: offset {expected[row]} is expected, "
                f"the batch begins with {first[row]}"
            )


def _read(
    file: SegmentLog, size: int, at: int, allocate: Allocate | None
) -> bytes | memoryview:
    if allocate is None or not is_local_file(file):
        return file.pread(size, at)
    buffer = allocate(size)
    return buffer[: file.pread_into(buffer, at)]


def _is_true(found: Batches, data: bytes | memoryview, position: int, limit: int, at: int) -> bool:
    """Tell whether an index led to a batch that lies at or before offset `at`."""
    if len(found):
        return int(found.table["base_offset"][0]) <= at
    return found.error is None and len(data) < _size_of(data) <= limit - position


def _size_of(data: bytes | memoryview, at: int = 0) -> int:
    """The size of the batch at byte `at` of `data`; 0 if its length isn't there."""
    if len(data) < at + LOG_OVERHEAD:
        return 0
    length = data[at + 8 : at + LOG_OVERHEAD]
    return int.from_bytes(length, "big", signed=True) + LOG_OVERHEAD


def _replaced(found: Batches, table: Table) -> Batches:
    return Batches(table, found.end, found.error)


def _up_to(table: Table, end: int) -> Table:
    """Without what lies behind the batch that reaches `end`: a crash may have left anything."""
    reached = np.flatnonzero(table["last_offset"] >= end - 1)
    return table[: int(reached[0]) + 1] if len(reached) else table


def _damage(error: DataCorruptionError, first: int, end: int) -> DataCorruptionError:
    """Return damage with the offsets that it takes away."""
    return DataCorruptionError(
        error.reason, path=error.path, position=error.position, first=first, end=end
    )


def _decode(
    decoder: Decoder,
    pieces: Iterable[Window],
    dropped: AbortedFilter | None,
    first: int,
    end: int,
    path: str,
) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Yield (records, offset behind them) whenever GATHERED_BYTES of log were taken in.

    So small segments come together, and what lies before a damage comes before the error. A pair
    may hold no record: its batches were markers, or aborted.
    """
    taken, reached = 0, first
    try:
        for window in pieces:
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
    """The batches of a window that hold records to give out."""
    table = window.batches.table
    if dropped is not None:
        table = dropped.keep(table, abort_reader(window, path))
    kept: Table = table[(table["attributes"] & CONTROL) == 0]
    return kept


def _behind(rows: pa.RecordBatch) -> int:
    return int(rows.column("offset")[-1].as_py()) + 1

