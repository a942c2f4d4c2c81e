"""Rewrites segments without the lock: the offset map, then a `.cleaned` segment a group.

Nothing here takes a lock or changes what the log holds: it reads closed segments and writes files
that any recovery throws away. So it may run in a thread, or as a task somewhere on this host.
Source: Cleaner.buildOffsetMap, cleanSegments, cleanInto (Kafka 4.1).
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sparklog.errors import DataCorruptionError, InvalidRequestError
from sparklog.format.batch import CONTROL, TRANSACTIONAL
from sparklog.format.compaction import OffsetMap
from sparklog.format.index import IndexState, final_time_entry, index_entries
from sparklog.format.names import (
    CLEANED,
    index_name,
    log_name,
    timeindex_name,
    txnindex_name,
)
from sparklog.format.scan import scan
from sparklog.fs import File, FileSystem
from sparklog.log.batch_windows import Window, walk
from sparklog.log.cleaned_transactions import CleanedTransactions
from sparklog.log.cleaner_options import Throttle, unthrottled
from sparklog.log.dirt import within
from sparklog.log.record_cleaning import WindowFilter, fold_window
from sparklog.logdir.cleaning.plan import CleanJob, Segment, grouped
from sparklog.logdir.cleaning.transactions import NO_LIMIT, AbortedEntries
from sparklog.logdir.partition.indexes import hint
from sparklog.logdir.partition.segment_swap import SegmentSwap, remove_made
from sparklog.logdir.partition.validation import misplaced, out_of_order
from sparklog.logdir.segment_files import joined

Table = NDArray[Any]
_MARKED: Final = TRANSACTIONAL | CONTROL


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """A group's new segment, in `.cleaned` files; pickles.

    `end`: behind the last offset it holds, `base` if none. `identity`: of its log. `parts`: names
    of its index files without suffix. `is_same`: it holds the very batches of its only source.
    `next_dirty`: the checkpoint once the whole job is done.
    """

    base: int
    end: int
    size: int
    sources: tuple[Segment, ...]
    identity: tuple[int, int]
    parts: tuple[str, ...]
    is_same: bool
    records_read: int
    records_kept: int
    next_dirty: int
    keys: int
    utilization: float


def rewrite(fs: FileSystem, job: CleanJob, throttle: Throttle = unthrottled) -> Iterator[Rewritten]:
    """Rewrite group after group. What is yielded may be swapped in before the next is made.

    Raises: DataCorruptionError: a source is damaged; InvalidRequestError: it holds batches of
    magic 0 or 1. Files of the group at hand are removed then; the log is as it was.
    Cost: reads the dirty part once and all segments up to its end once more, CRCs included.
    """
    for name in fs.listdir(job.directory):
        if name.endswith(CLEANED):  # of a cleaning that died
            with contextlib.suppress(FileNotFoundError):
                fs.unlink(joined(job.directory, name))
    aborted = AbortedEntries(fs, job.directory, job.bases, log_start=job.log_start)
    offsets = build_map(fs, job, aborted, throttle)
    rewriter = _Rewriter(fs, job, offsets, aborted, throttle)
    for group in grouped(fs, job, offsets.latest + 1):
        yield rewriter.rewrite(group)


def build_map(
    fs: FileSystem, job: CleanJob, aborted: AbortedEntries, throttle: Throttle
) -> OffsetMap:
    """Return the newest offset of each key of the dirty part, as far as the map's memory goes."""
    offsets = OffsetMap(job.options.dedupe_buffer_bytes, job.options.load_factor)
    first, end = job.dirt.first_dirty, job.dirt.first_uncleanable
    transactions = CleanedTransactions()
    transactions.add(aborted.touching(_floor(job.bases, first), end))
    dirty = within(job.segments, first, end)
    for at, segment in enumerate(dirty):
        for window, path in _windows(fs, job, segment, first, throttle):
            if not fold_window(offsets, transactions, window, first, path):
                return offsets
        following = dirty[at + 1].base if at + 1 < len(dirty) else end
        offsets.skip_to(following - 1)
    return offsets


def _floor(bases: Sequence[int], offset: int) -> int:
    return max((base for base in bases if base <= offset), default=offset)


def _windows(
    fs: FileSystem, job: CleanJob, segment: Segment, first: int, throttle: Throttle
) -> Iterator[tuple[Window, str]]:
    """Yield the windows of a segment from offset `first` on; all of it must be whole."""
    directory, expected = job.directory, segment.base
    path = joined(directory, log_name(segment.base))
    limit = min((base for base in job.bases if base > segment.base), default=job.end)
    with fs.open(path) as file:
        at = hint(fs, directory, segment.base, file, first) if first > segment.base else 0
        for window in walk(file, start=at, limit=segment.size):
            throttle(len(window.data))
            table, error = window.batches.table, window.batches.error
            if error is not None:
                raise error
            fault = out_of_order(table, expected, limit, gaps=True)
            if fault < 0 and len(table) and int(table["last_offset"][-1]) >= limit:
                fault = int(np.argmax(table["last_offset"] >= limit))
            if fault >= 0:  # the CRC doesn't cover offsets
                raise misplaced(path, table[fault], expected)
            if len(table) and int(table["magic"].min()) < 2:
                raise InvalidRequestError(
                    f"{path} holds record batches of magic 0 or 1, which can't be compacted here: "
                    "let a broker before 4.0 compact the topic, or write it anew"
                )
            if len(table):
                yield window, path
                expected = int(table["last_offset"][-1]) + 1
            at = window.batches.end
        if at != segment.size:
            raise DataCorruptionError(
                f"the file ends in a torn batch, {segment.size} bytes are expected",
                path=path,
                position=at,
            )


class _Rewriter:
    """What goes on from group to group: the map, the filter, the open transactions."""

    def __init__(
        self,
        fs: FileSystem,
        job: CleanJob,
        offsets: OffsetMap,
        aborted: AbortedEntries,
        throttle: Throttle,
    ) -> None:
        self.fs, self.job, self.offsets = fs, job, offsets
        self.aborted, self.throttle = aborted, throttle
        self.transactions = CleanedTransactions()

    def rewrite(self, group: Sequence[Segment]) -> Rewritten:
        target = _Target(self.fs, self.job, group)
        records_filter = WindowFilter(
            self.offsets,
            self.transactions,
            now_ms=self.job.now_ms,
            horizon_ms=self.job.now_ms + self.job.config.delete_retention_ms,
            first_uncleanable=self.job.dirt.first_uncleanable,
            producers=self.job.producers,
        )
        try:
            for at, segment in enumerate(group):
                self._learn(group, at)
                for window, path in _windows(self.fs, self.job, segment, 0, self.throttle):
                    for piece in records_filter.filter(window, path):
                        target.write(piece.out[: piece.size])
                        self.throttle(piece.size)
            parts = target.finish(self.transactions.take_index())
        except BaseException:
            target.discard()
            raise
        read, kept = records_filter.records
        return Rewritten(
            base=target.base,
            end=target.end,
            size=target.size,
            sources=tuple(group),
            identity=target.identity,
            parts=parts,
            is_same=len(group) == 1
            and target.size == group[0].size
            and not (records_filter.rewritten or self.aborted),
            records_read=read,
            records_kept=kept,
            next_dirty=self.offsets.latest + 1,
            keys=len(self.offsets),
            utilization=self.offsets.utilization,
        )

    def _learn(self, group: Sequence[Segment], at: int) -> None:
        """Tell the transactions which aborts the next segment will meet."""
        if self.aborted:
            is_last = at + 1 == len(group)
            end = self._next_offset(group[at]) if is_last else group[at + 1].base
            self.transactions.add(self.aborted.touching(group[at].base, end))

    def _next_offset(self, segment: Segment) -> int:
        """Source: LogSegment.readNextOffset."""
        fs, directory, end = self.fs, self.job.directory, segment.base
        with fs.open(joined(directory, log_name(segment.base))) as file:
            start = hint(fs, directory, segment.base, file, NO_LIMIT - 1)
            for window in walk(file, start=start, limit=segment.size, check_crc=False):
                if len(window.batches):
                    end = int(window.batches.table["last_offset"][-1]) + 1
        return end


@dataclass(slots=True)
class _Target:
    """The `.cleaned` files of a new segment."""

    fs: FileSystem
    job: CleanJob
    group: Sequence[Segment]
    base: int = 0
    end: int = 0
    size: int = 0
    identity: tuple[int, int] = (0, 0)
    _log: File = field(init=False)
    _index: bytearray = field(default_factory=bytearray)
    _timeindex: bytearray = field(default_factory=bytearray)
    _state: IndexState = field(default_factory=IndexState)

    def __post_init__(self) -> None:
        self.base = self.end = self.group[0].base
        self._log = self._create(log_name(self.base))
        # Of this very file: another cleaner may put its own in this place before we are done.
        self.identity = self.fs.identity(self._log.path)

    def _names(self) -> list[str]:
        base = self.base
        return [log_name(base), index_name(base), timeindex_name(base), txnindex_name(base)]

    def _path(self, name: str) -> str:
        return joined(self.job.directory, name + CLEANED)

    def _unlink(self, names: list[str]) -> None:
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                self.fs.unlink(self._path(name))

    def _create(self, name: str) -> File:
        return self.fs.open(self._path(name), create=True)

    def write(self, data: memoryview) -> None:
        table = scan(data, path=self._log.path, position=self.size, check_crc=False).table
        index, timeindex, self._state = index_entries(
            table, self.base, self.job.config.index_interval_bytes, self._state
        )
        self._log.pwrite(data, self.size)
        self._index += index
        self._timeindex += timeindex
        self.size += len(data)
        self.end = int(table["last_offset"][-1]) + 1

    def finish(self, aborted: bytes) -> tuple[str, ...]:
        """Make the files durable; return the names of the index files.

        An empty index of aborted transactions takes the place of one that is no longer true.
        """
        entry, self._state = final_time_entry(self.base, self._state)
        contents = {
            index_name(self.base): bytes(self._index),
            timeindex_name(self.base): bytes(self._timeindex) + entry,
        }
        old = joined(self.job.directory, txnindex_name(self.base))
        if aborted or self.fs.exists(old):
            contents[txnindex_name(self.base)] = aborted
        changed_ms = self.fs.mtime_ms(joined(self.job.directory, log_name(self.group[-1].base)))
        with self._log:
            self._log.sync()
        for name, data in contents.items():
            with self._create(name) as file:
                file.pwrite(data, 0)
                file.sync()
        for name in (log_name(self.base), *contents):
            self.fs.set_mtime_ms(self._path(name), changed_ms)
        return tuple(contents)

    def discard(self) -> None:
        self._log.close()
        with contextlib.suppress(Exception):  # what stays is rubbish that any recovery removes
            self._unlink(self._names())


def swap_of(made: Rewritten) -> SegmentSwap:
    """Return what whoever completes the swap must know."""
    others = [source.base for source in made.sources[1:]]
    return SegmentSwap(
        base=made.base,
        parts=tuple(made.parts),
        log=made.identity,
        covered=tuple(base for base in others if base < made.end),
        trailing=tuple(base for base in others if base >= made.end),
    )


def is_possible(fs: FileSystem, directory: str, made: Rewritten) -> bool:
    """Tell whether the sources are still those that were read, and the new files still there."""
    try:
        for source in made.sources:
            path = joined(directory, log_name(source.base))
            if fs.identity(path) != source.identity or fs.size(path) != source.size:
                return False
        log = joined(directory, log_name(made.base) + CLEANED)
        if fs.identity(log) != made.identity or fs.size(log) != made.size:
            return False
    except FileNotFoundError:
        return False
    return all(fs.exists(joined(directory, name + CLEANED)) for name in made.parts)


def discard(fs: FileSystem, directory: str, made: Rewritten) -> None:
    """Remove new files that won't be swapped in, if they are still ours. Needs no lock."""
    with contextlib.suppress(FileNotFoundError):
        if fs.identity(joined(directory, log_name(made.base) + CLEANED)) == made.identity:
            remove_made(fs, directory, made.base, made.parts, CLEANED)
