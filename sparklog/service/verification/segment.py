"""Checks all CRCs and offsets of a segment, and determines the exact range of damage.

A reader stops at the first bad batch. This pass searches for the next complete batch with a good
CRC and a plausible offset, and continues there, so that the reported range is exactly the loss.
Memory: a window of a few MiB.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from sparklog.format.batch import HEADER_SIZE, LOG_OVERHEAD
from sparklog.format.names import log_name
from sparklog.format.scan import misplaced_rows, scan
from sparklog.fs import File, FileSystem
from sparklog.log.batch_windows import WINDOW_BYTES, Window, walk
from sparklog.logdir.segment_files import joined
from sparklog.service.verification.findings import Findings, FixKind, Severity
from sparklog.service.verification.log_dir_state import NO_LIMIT, ExpectedPartition, Situation
from sparklog.storage.segments import SegmentLog

Table = NDArray[Any]
_MAGIC_AT: Final = 16
_TORN: Final = "a batch runs past the end of the file"


class Consumer(Protocol):
    """Processes the good batches of a segment, in order."""

    def take(self, window: Window, table: Table) -> None:
        """Process some rows; `window` has their bytes."""


@dataclass(slots=True)
class Walked:
    """The result of a pass over a segment.

    Attributes:
        end: The offset after the last batch.
        size: The position in bytes after the last batch.
        disk_bytes: The size of the file.
        largest: The size of the largest batch.
        damaged: Whether records are lost, or the segment has a tail that readers don't see.
    """

    base: int
    end: int
    size: int = 0
    disk_bytes: int = 0
    largest: int = 0
    damaged: bool = False


class SegmentWalk:
    """A pass over a segment.

    Args:
        following: The base offset of the next segment; None for the last segment.
        expected: The expected first offset.
        is_known: Whether the ledger has checksums of the segment's last batches.
    """

    def __init__(
        self,
        fs: FileSystem,
        part: ExpectedPartition,
        base: int,
        out: Findings,
        *,
        following: int | None,
        expected: int,
        is_known: bool = False,
    ) -> None:
        self._fs, self._part, self._out = fs, part, out
        self._path = joined(part.path, log_name(base))
        self._following = following
        self.found = Walked(base, expected)
        self._limit = part.end if following is None else following
        self._ours = part.situation.is_ours
        # In a compacted range a swap may be in progress: a segment may overlap later segments.
        swaps = following is not None and following <= part.gaps_below
        self._stop = part.end if swaps else self._limit
        self._tail_at: int | None = None
        self._is_known = is_known

    def run(self, consumers: Sequence[Consumer]) -> Walked:
        """Read the entire file.

        Raises:
            FileNotFoundError: The file was deleted or moved.
        """
        found = self.found
        with self._fs.open(self._path) as file:
            found.disk_bytes = size = file.size()
            at = 0
            while at < size:
                reason = _TORN
                for window in walk(file, start=at, limit=size):
                    at = self._take(file, window, consumers)
                    error = window.batches.error
                    reason = _TORN if error is None else error.reason
                    if at == size:
                        break
                if at < size:
                    at = self._behind(file, at, reason)
        self._finish()
        return found

    def _take(self, file: File, window: Window, consumers: Sequence[Consumer]) -> int:
        """Process a window. Return the byte to continue at.

        If all remaining bytes are a tail past the end of the log, the returned byte is the file's
        end.
        """
        good, found = self._good(file, window.batches.table), self.found
        if len(good):
            found.size = int(good["position"][-1] + good["size"][-1])
            found.largest = max(found.largest, int(good["size"].max()))
            for consumer in consumers:
                consumer.take(window, good)
        return window.batches.end if self._tail_at is None else found.disk_bytes

    # -- offsets

    def _good(self, file: File, table: Table) -> Table:
        """Return the rows with correct offsets; report the others."""
        fits = np.ones(len(table), np.bool_)
        at = 0
        while at < len(table):
            wrong = self._wrong(table[at:])
            stop = len(table) if wrong < 0 else at + wrong
            if self._ours:
                past = np.flatnonzero(table["base_offset"][at:stop] >= self._stop)
                if len(past):
                    return self._cut(table, fits, at + int(past[0]))
            if stop > at:
                self.found.end = int(table["last_offset"][stop - 1]) + 1
            if stop == len(table):
                break
            if self._ours and self.found.end >= self._stop:
                return self._cut(table, fits, stop)
            at = self._misplaced(file, table, fits, stop)
        return table[fits]

    def _wrong(self, table: Table) -> int:
        """Return the first row that doesn't follow the row before; -1 if there is none."""
        hits = np.flatnonzero(misplaced_rows(table, self.found.end, self._part.gaps_below))
        return int(hits[0]) if len(hits) else -1

    def _cut(self, table: Table, fits: NDArray[np.bool_], row: int) -> Table:
        if row:
            before = table["last_offset"][:row][fits[:row]]
            self.found.end = max(self.found.end, int(before[-1]) + 1 if len(before) else 0)
        self._tail_at = int(table["position"][row])
        return table[:row][fits[:row]]

    def _misplaced(self, file: File, table: Table, fits: NDArray[np.bool_], row: int) -> int:
        """Report a row with a wrong offset. Return the row to continue with."""
        expected, first = self.found.end, int(table["base_offset"][row])
        after = expected + int(table["last_offset"][row]) - first + 1
        position = int(table["position"][row])
        if self._next_base(file, table, row) == after:  # the CRC doesn't cover the base offset
            self._damage(f"its base offset {first} should be {expected}", position, after)
            fits[row] = False
            self.found.end = after
            return row + 1
        if first > expected:
            self._damage(f"offsets are missing before {first}", position, first)
            self.found.end = first
            return row
        behind = np.flatnonzero(table["base_offset"][row:] >= expected)
        stop = row + int(behind[0]) if len(behind) else len(table)
        resumed = int(table["base_offset"][stop]) if len(behind) else None
        self._damage(f"offset {first} is stored where {expected} is expected", position, resumed)
        fits[row:stop] = False
        if resumed is not None:
            self.found.end = resumed
        return stop

    def _next_base(self, file: File, table: Table, row: int) -> int:
        if row + 1 < len(table):
            return int(table["base_offset"][row + 1])
        stop = int(table["position"][row] + table["size"][row])
        head = file.pread(8, stop)
        return int.from_bytes(head, "big") if len(head) == 8 else self._limit

    # -- damage

    def _behind(self, file: File, at: int, reason: str) -> int:
        """Report the damage that stopped the pass at byte `at`. Return where to continue."""
        expected = self.found.end
        if self._ours and expected >= self._stop:
            self._tail_at = at
            return self.found.disk_bytes
        limit = self._limit
        if not self._ours and self._following is None:
            limit = NO_LIMIT  # a broker's log may end anywhere
        found = resync(file, at + 1, expected, limit)
        if found is not None:
            position, base = found
            self._damage(reason, at, base)
            self.found.end = base
            return position
        if self._following is None and expected >= self._part.end:
            self._tail_at = at
        else:
            self._damage(reason, at, self._limit)
            self.found.end = max(self.found.end, self._limit)
        return self.found.disk_bytes

    def _damage(self, what: str, position: int, end: int | None) -> None:
        self.found.damaged = True
        part, first = self._part, self.found.end
        dead = self._following is not None and self._following <= part.start
        if end is not None and end <= part.start:
            self._out.add(
                Severity.DIFFERENCE,
                self._path,
                f"{what}; all below the log start {part.start}",
                position=position,
                first=first,
                end=end,
                fix=FixKind.SEGMENT_ASIDE if dead else None,
                offset=self.found.base,
            )
            return
        self._out.add(
            Severity.DAMAGE,
            self._path,
            f"{what}; restore the file from a copy",
            position=position,
            first=max(first, part.start),
            end=end,
        )

    def _finish(self) -> None:
        found, part = self.found, self._part
        if self._tail_at is not None and self._tail_at < found.disk_bytes:
            if self._following is None:
                self._tail(self._tail_at)
            else:
                self._closed_tail(self._tail_at)
        if found.end >= self._limit:
            return
        if self._following is not None and self._limit <= part.gaps_below:
            return  # compaction removed the records at the segment's end
        if part.situation is not Situation.RUNNING:
            self._damage("the file ends too early", found.disk_bytes, self._limit)
        found.end = self._limit

    def _tail(self, at: int) -> None:
        """Report bytes past the end, unless a writer may be writing them."""
        situation = self._part.situation
        if situation.is_live:
            return
        what = f"bytes [{at}, {self.found.disk_bytes}) lie past the end {self.found.end}"
        if situation.is_clean:
            self._out.add(
                Severity.DIFFERENCE, self._path, what, position=at, first=self.found.end,
                fix=FixKind.TAIL, offset=at,
            )  # fmt: skip
            return
        fix = FixKind.OPEN if situation is Situation.CRASHED else None
        self._out.add(
            Severity.LEFTOVER, self._path, what, position=at, first=self.found.end, fix=fix
        )

    def _closed_tail(self, at: int) -> None:
        """Report bytes past the end of a closed segment.

        If these bytes continue with the next segment's offsets, the entire segment may belong to
        another log. Only the ledger's checksums can decide this. Without checksums, the segment is
        reported as damaged and a repair does not change it. With checksums, a repair moves the
        bytes to quarantine, unless a wrong checksum is reported as well.
        """
        with self._fs.open(self._path) as file:
            head = file.pread(8, at)
        goes_on = len(head) == 8 and int.from_bytes(head, "big") >= self._stop
        what = f"bytes [{at}, {self.found.disk_bytes}) lie past the segment's end {self.found.end}"
        if goes_on and not self._is_known:
            self.found.damaged = True
            self._out.add(
                Severity.DAMAGE,
                self._path,
                f"{what} and go on into the next segment: the file may be another log's; restore "
                "it from a copy",
                position=at,
                first=self.found.base,
                end=self._following,
            )
            return
        self._out.add(
            Severity.DIFFERENCE, self._path, what, position=at, first=self.found.end,
            fix=FixKind.TAIL, offset=at,
        )  # fmt: skip


def resync(file: SegmentLog, start: int, first: int, limit: int) -> tuple[int, int] | None:
    """Find the next complete batch at or after byte `start` with first <= base offset < limit.

    Returns (position, base offset), or None. Cost: a pass over the bytes between, and a CRC for
    each position that looks like a batch of these offsets.
    """
    size = file.size()
    for at in range(start, size, WINDOW_BYTES):
        data = file.pread(WINDOW_BYTES + HEADER_SIZE, at)
        if len(data) < HEADER_SIZE:
            break
        for hit in _candidates(data, first, limit):
            if hit < WINDOW_BYTES and _is_whole(file, at + hit, size):
                return at + hit, int.from_bytes(data[hit : hit + 8], "big")
    return None


def _candidates(data: bytes, first: int, limit: int) -> list[int]:
    """Return positions in `data` of magic 2 after a base offset in [first, limit)."""
    raw = np.frombuffer(data, np.uint8)
    hits = np.flatnonzero(raw[_MAGIC_AT : len(raw) - HEADER_SIZE + _MAGIC_AT + 1] == 2)
    words = raw[hits[:, None] + np.arange(8)].copy() if len(hits) else np.empty((0, 8), np.uint8)
    bases = words.view(">u8")[:, 0] if len(hits) else np.empty(0, np.uint64)
    fits = (bases >= np.uint64(first)) & (bases < np.uint64(limit))
    return [int(hit) for hit in hits[fits]]


def _is_whole(file: SegmentLog, position: int, size: int) -> bool:
    head = file.pread(LOG_OVERHEAD, position)
    length = int.from_bytes(head[8:12], "big", signed=True) + LOG_OVERHEAD
    if not HEADER_SIZE <= length <= size - position:
        return False
    data = file.pread(length, position)
    return len(scan(data, path=file.path, position=position, max_batches=1)) == 1
