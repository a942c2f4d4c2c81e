"""Remember which batches of local segments have a verified CRC and can be sent from the file.

A batch that was read and verified recently need not be copied into this process for the next
client: the kernel can send it from the page cache (sendfile). Only verified batches are sent this
way. When a file changes, its verified batches are forgotten.
"""

import bisect
import os
import threading
import weakref
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sparklog.clock import monotonic_ms, system_clock
from sparklog.format.batch import TRANSACTIONAL
from sparklog.log.batch_windows import Window
from sparklog.log.partition_reader import PartitionReader, ReadBudget
from sparklog.storage.segments import SupportsPreadInto

RANGE_BYTES_MIN: Final = 1 << 10
"""Smaller ranges are sent from memory. A range of 4 KiB costs a quarter less (docs/kafka.md)."""
TRUSTED_MS: Final = 600_000
"""After this time batches are checked again. Their pages may have left the cache."""
SETTLED_MS: Final = 2000
"""A younger file may change again within the same tick of its modification time."""
DESCRIPTORS_MAX: Final = 256
ROWS_MAX: Final = 1 << 20
"""Batches that are remembered; 16 bytes each."""
_MAGIC: Final = 2
_RUN_ROWS: Final = 32  # memory of a run besides its rows, in rows
_JOINED_ROWS: Final = 1024
_Stamp = tuple[int, int, int]


class _Descriptors:
    """Limits the number of open file descriptors of ranges to be sent. Thread-safe."""

    def __init__(self, count: int) -> None:
        self._free = deque(range(count))

    def take(self, file: SupportsPreadInto) -> "_Descriptor | None":
        """Return a new descriptor of an open file, or None if too many descriptors are open."""
        try:
            token = self._free.pop()
        except IndexError:
            return None
        try:
            # A duplicate, because the reader may close its file before the range is sent.
            return _Descriptor(file.duplicate(), self._free, token)
        except BaseException:
            self._free.append(token)
            raise


class _Descriptor:
    """An open file descriptor. It is closed when no range uses it any more."""

    __slots__ = ("_free", "_token", "fd")

    def __init__(self, fd: int, free: "deque[int]", token: int) -> None:
        self.fd, self._free, self._token = fd, free, token

    def __del__(self) -> None:
        os.close(self.fd)
        self._free.append(self._token)


class FileRange:
    """A range of a file to be sent. The file stays open until the range is dropped.

    A file that is deleted or replaced before it is sent, is sent in its old state.
    """

    __slots__ = ("_at", "_descriptor", "_size", "path")

    def __init__(self, descriptor: _Descriptor, path: str, at: int, size: int) -> None:
        self._descriptor, self.path, self._at, self._size = descriptor, path, at, size

    def __len__(self) -> int:
        return self._size

    def send(self, socket_fd: int, size_max: int) -> int:
        """Send the first bytes to a non-blocking socket, and return how many were sent.

        The sent bytes are removed from the range. 0 means that the file was truncated.

        Raises:
            BlockingIOError: The socket accepts no data now.
            OSError: The connection is closed, or the file can't be read.
        """
        size = min(self._size, size_max)
        sent = os.sendfile(socket_fd, self._descriptor.fd, self._at, size)
        self._at += sent
        self._size -= sent
        return sent

    def read(self, size_max: int) -> bytes:
        """Return and remove the first bytes of the range.

        The result is empty if the file was truncated.
        """
        data = os.pread(self._descriptor.fd, min(self._size, size_max), self._at)
        self._at += len(data)
        self._size -= len(data)
        return data


@dataclass(frozen=True, slots=True)
class _Run:
    """Adjacent batches of a segment with a verified CRC.

    Attributes:
        first_offset: The offset of the first record.
        position: The position of the first batch in the file.
        last_offsets: The last offset of each batch.
        ends: The end position of each batch.
        is_transactional: Whether any batch belongs to a transaction.
        checked_ms: When the CRC was verified (monotonic).
    """

    first_offset: int
    position: int
    last_offsets: NDArray[np.int64]
    ends: NDArray[np.int64]
    is_transactional: bool
    checked_ms: float

    def is_followed_by(self, other: "_Run") -> bool:
        """Return True if `other` directly follows, and both are short enough to be joined."""
        return (
            int(self.ends[-1]) == other.position
            and int(self.last_offsets[-1]) + 1 == other.first_offset
            and len(self.ends) + len(other.ends) <= _JOINED_ROWS
        )

    def joined(self, other: "_Run") -> "_Run":
        """Return a run of the batches of both, with this run's check time."""
        return _Run(
            self.first_offset, self.position,
            np.concatenate((self.last_offsets, other.last_offsets)),
            np.concatenate((self.ends, other.ends)),
            self.is_transactional or other.is_transactional, self.checked_ms,
        )  # fmt: skip


@dataclass(slots=True)
class _Segment:
    """The verified batches of a segment.

    Attributes:
        stamp: Identifies the state of the segment's file.
        runs: The batches as runs of adjacent batches, by first offset and without overlaps.
    """

    stamp: _Stamp
    runs: list[_Run] = field(default_factory=list)  # by first offset, without overlaps


@dataclass(frozen=True, slots=True)
class VerifiedRange:
    """Remembered batches that can be sent.

    Attributes:
        range: The range of the file.
        next_offset: The offset after the batches.
        is_transactional: Whether any batch belongs to a transaction.
    """

    range: FileRange
    next_offset: int
    is_transactional: bool


class VerifiedBatches:
    """Remembers which batches have a verified CRC, by reader and segment. Thread-safe.

    A view drops its readers when the log is replaced or records are erased; their batches are then
    forgotten. Batches of compacted logs are not remembered, because their segments can be replaced.
    """

    def __init__(
        self, *, rows_max: int = ROWS_MAX, descriptors_max: int = DESCRIPTORS_MAX
    ) -> None:
        self._readers: weakref.WeakKeyDictionary[PartitionReader, dict[int, _Segment]] = (
            weakref.WeakKeyDictionary()
        )
        self._lock = threading.Lock()
        self._rows, self._rows_max = 0, rows_max
        self._descriptors = _Descriptors(descriptors_max)

    def remember(self, reader: PartitionReader, window: Window) -> None:
        """Remember the batches of a window after the caller has verified their CRCs.

        Nothing is remembered if the segment is remote or was changed just now, or if the log is
        compacted.
        """
        table: Any = window.batches.table
        if reader.segments.gaps or bool((table["magic"] != _MAGIC).any()):
            return
        base, file = reader.local_file(int(table["base_offset"][0]))
        stamp = None if file is None else _settled(file.stat())
        ends = table["position"] + table["size"]
        if stamp is None or bool((ends[:-1] != table["position"][1:]).any()):
            return
        run = _Run(
            int(table["base_offset"][0]), int(table["position"][0]), table["last_offset"].copy(),
            ends, bool((table["attributes"] & TRANSACTIONAL).any()), monotonic_ms(),
        )  # fmt: skip
        with self._lock:
            rows = len(ends) + _RUN_ROWS
            if self._rows + rows > self._rows_max:
                # Forget all: uses are not ordered, and a read verifies a batch again.
                self._readers.clear()
                self._rows = 0
            segments = self._readers.setdefault(reader, {})
            segment = segments.get(base)
            if segment is None or segment.stamp != stamp:
                segment = segments[base] = _Segment(stamp)
            _insert(segment.runs, run)
            self._rows += rows

    def find(
        self, reader: PartitionReader, start: int, end: int, budget: ReadBudget
    ) -> VerifiedRange | None:
        """Return remembered batches from the batch with `start` on; charge them to `budget`.

        No batch reaches past `end`, the segment's end or the budget. The batches are charged to
        `budget`. Returns None if the range is smaller than RANGE_BYTES_MIN, the file has changed,
        or too many files are open.
        """
        if budget.left_bytes < RANGE_BYTES_MIN or reader not in self._readers:
            return None
        base, file = reader.local_file(start)
        if file is None:
            return None
        with self._lock:
            segment = self._readers.get(reader, {}).get(base)
            if segment is None:
                return None
            taken = _take(segment.runs, start, end, budget.left_bytes)
        if taken is None or taken.size < RANGE_BYTES_MIN:
            return None
        if file.stat() != segment.stamp:  # changed since the check, for example by an erasure
            with self._lock:
                self._readers.get(reader, {}).pop(base, None)
            return None
        descriptor = self._descriptors.take(file)
        if descriptor is None:
            return None
        budget.take_bytes(taken.size)
        budget.full = taken.is_full or not budget.left_bytes
        file_range = FileRange(descriptor, file.path, taken.position, taken.size)
        return VerifiedRange(file_range, taken.next_offset, taken.is_transactional)


@dataclass(slots=True)
class _Taken:
    position: int
    size: int
    next_offset: int
    is_transactional: bool
    is_full: bool = False
    """The next batch does not fit."""


def _first_offset(run: _Run) -> int:
    return run.first_offset


def _insert(runs: list[_Run], new: _Run) -> None:
    """Insert a run of adjacent batches, in place of runs with the same offsets.

    The run is joined with the previous run if it directly follows.
    """
    last = int(new.last_offsets[-1])
    first = at = bisect.bisect_left(runs, new.first_offset, key=_first_offset)
    if at and int(runs[at - 1].last_offsets[-1]) >= new.first_offset:
        first = at - 1
    while at < len(runs) and runs[at].first_offset <= last:
        at += 1
    before = runs[first - 1] if first else None
    if before is not None and before.is_followed_by(new):
        first, new = first - 1, before.joined(new)
    runs[first:at] = [new]


def _take(runs: list[_Run], start: int, end: int, bytes_max: int) -> _Taken | None:
    """Return the adjacent batches from the batch with `start` on; None for an unknown `start`.

    Returns None if this batch is not remembered. Batches that reach past `end` or exceed
    `bytes_max`, and runs that were checked too long ago, are left out.
    """
    at = bisect.bisect_right(runs, start, key=_first_offset) - 1
    taken: _Taken | None = None
    oldest_ms = monotonic_ms() - TRUSTED_MS
    for run in runs[max(at, 0) :] if at >= 0 else ():
        offset = start if taken is None else taken.next_offset
        if run.checked_ms < oldest_ms or not run.first_offset <= offset:
            break
        first = int(run.last_offsets.searchsorted(offset))
        if first == len(run.ends):
            break
        position = int(run.ends[first - 1]) if first else run.position
        if taken is None:
            taken = _Taken(position, 0, start, False)
        elif position != taken.position + taken.size:
            break
        below = int(run.last_offsets.searchsorted(end))
        fitting = int(run.ends.searchsorted(taken.position + bytes_max, side="right"))
        taken.is_full = fitting < below
        stop = min(below, fitting)
        if stop <= first:
            break
        taken.size = int(run.ends[stop - 1]) - taken.position
        taken.next_offset = int(run.last_offsets[stop - 1]) + 1
        taken.is_transactional |= run.is_transactional
        if stop < len(run.ends):
            break
    return taken if taken is not None and taken.size else None


def _settled(stat: _Stamp) -> _Stamp | None:
    """Return the stamp if each later change of the file will give another stamp.

    Otherwise return None.
    """
    return stat if stat[2] // 1_000_000 < system_clock() - SETTLED_MS else None
