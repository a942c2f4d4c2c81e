"""Extents as logs of segments: concatenated, with committed offsets, prefetched for readers."""

import bisect
import itertools
from collections.abc import Callable, Sequence
from typing import Final

from sparklog.diskless.checksums import SummedLog
from sparklog.diskless.extent_objects import (
    ExtentObjects,
    Keys,
    ObjectRange,
    content_of,
    grouped,
    place_of,
)
from sparklog.diskless.extent_tables import TableHead, block_size, pieces_of, read_head
from sparklog.diskless.extents import Extent, Extents
from sparklog.diskless.numbered_batches import NumberedBatches
from sparklog.lru_cache import LruCache
from sparklog.storage.segments import SegmentLog
from sparklog.tiered.reading.range_fetcher import RUN_BYTES
from sparklog.tiered.reading.remote_segment_log import AHEAD_BYTES, RemoteSegmentLog

AHEAD_MAX: Final = 64
"""Maximum number of extents that are prefetched for a sequential reader."""
_AHEAD_FIRST: Final = 4
_TABLES_MAX: Final = 16


class ExtentLogs:
    """The logs of a partition's extents at a point in time. Thread-safe.

    Args:
        topic: The topic, for metrics.
        extents: The extents in offset order. They are not changed later.
        eager: Whether the caller will read all extents, beginning with the first.
    """

    def __init__(
        self,
        objects: ExtentObjects,
        log_id: str,
        topic: str,
        extents: Extents,
        keys: Keys,
        *,
        eager: bool = False,
    ) -> None:
        self.extents = extents
        self._objects, self._log_id, self._topic = objects, log_id, topic
        self._keys, self._eager = keys, eager
        self._places = [place_of(extent) for extent in extents]
        self._groups: dict[int, tuple[ObjectRange, int]] = {}
        self._tables: LruCache[str, TableHead] = LruCache(_TABLES_MAX)
        self._last, self._span, self._asked = -1, 0, 0

    def open(self, at: int, *, check: bool = False) -> SegmentLog:
        """Open the extent with number `at` as the log of a segment.

        The call makes no request, except for the rows of an extent in an extent table.

        Args:
            at: The index of the extent.
            check: Whether to verify the CRCs of batches without committed offsets, so that errors
                name the object of a damaged batch.
        """
        extent = self.extents[at]
        if extent.pieces:
            log = self._pieces(extent)
        else:
            whole, first = self._group_of(at)
            part = whole.within(self._places[at].start - first, self._places[at].size)
            raw = RemoteSegmentLog(
                self.path_of(extent), part, lambda size: self._ahead(at + 1, 1, size)
            )
            summed = SummedLog(raw, extent, self._objects.url(extent.object))
            log = self._numbered(extent, summed, check=check)
        return _Noticed(log, lambda: self._begun(at))

    def path_of(self, extent: Extent) -> str:
        """Return an extent's location for messages, whose positions count from its first byte."""
        url = self._objects.url(extent.object)
        return url if not extent.start else f"{url} (from byte {extent.start} on)"

    def _numbered(self, extent: Extent, raw: SegmentLog, *, check: bool) -> SegmentLog:
        if extent.segment:
            return raw
        return NumberedBatches(
            raw, extent.size, base=extent.base, count=extent.end - extent.base,
            epoch=extent.epoch, stamp_ms=extent.stamp_ms, check=check,
        )  # fmt: skip

    # --- locations -------------------------------------------------------------------------------

    def _group_of(self, at: int) -> tuple[ObjectRange, int]:
        """Return the range that is fetched with extent number `at`, and the range's first byte."""
        group = self._groups.get(at)
        if group is None:
            numbers = range(at, at + 1)
            # Only extents of commits share an object with the extents beside them.
            if not (self.extents[at].pieces or self.extents[at].segment):
                numbers = grouped(self._places, at)
            first, last = self._places[numbers[0]], self._places[numbers[-1]]
            size = last.start + last.size - first.start
            content = content_of(self.extents[number] for number in numbers)
            group = self._range(first.object, first.start, size, self._keys, content), first.start
            for number in numbers:
                self._groups[number] = group
        return group

    def _range(
        self, name: str, start: int, size: int, keys: Keys, content: int = -1
    ) -> ObjectRange:
        return ObjectRange(
            self._objects, self._log_id, self._topic, name, start, size, keys.get(name), content
        )

    def _pieces(self, extent: Extent) -> SegmentLog:
        """Return the log of an extent in an extent table: the concatenation of its chunks."""
        path = self._objects.url(extent.object)
        end = extent.start + block_size(extent)  # the names precede all rows
        table = self._range(extent.object, 0, end, {})

        def get(start: int, stop: int) -> bytes:
            return table.get(start, min(stop, end))

        head = self._tables.get_or_make(extent.object, lambda: read_head(get, path=path))
        pieces = pieces_of(extent, head, get(extent.start, end), path=path)
        inner = ExtentLogs(
            self._objects, self._log_id, self._topic, pieces, head.keys, eager=True
        )
        return Concatenated(path, [_Opened(inner, at) for at in range(len(pieces))])

    # --- prefetching -----------------------------------------------------------------------------

    def _begun(self, at: int) -> None:
        """Prefetch the extents after extent number `at`, which a reader has just begun to read.

        Without `eager`, this happens only if the reader has begun consecutive extents.
        """
        if at == self._last:
            return
        in_a_row = at == self._last + 1 and (self._last >= 0 or self._eager)
        if not in_a_row:
            self._span = self._asked = 0
        self._last = at
        if in_a_row:
            # The span doubles, so that a reader of a few records causes few superfluous requests.
            most = AHEAD_MAX if self._eager else min(max(2 * self._span, _AHEAD_FIRST), AHEAD_MAX)
            self._span = most
            self._ahead(at + 1, most, AHEAD_BYTES)

    def _ahead(self, first: int, most: int, size: int) -> None:
        """Prefetch up to `most` extents from number `first` on, `size` bytes in total."""
        end = min(first + most, len(self.extents))
        for at in range(first, end):
            if size <= 0:
                return
            extent = self.extents[at]
            # An extent in a table would need a request for its rows first, in the reader's thread.
            if at >= self._asked and not extent.pieces:
                whole, begins = self._group_of(at)
                begin = self._places[at].start - begins
                stop = min(whole.size if whole.size <= RUN_BYTES else begin + size, whole.size)
                whole.prefetch(begin, stop)
                self._asked = at + 1
            size -= extent.size


class _Noticed:
    """A log that calls `begun` when a read begins at byte 0."""

    def __init__(self, log: SegmentLog, begun: Callable[[], None]) -> None:
        self.path = log.path
        self._log, self._begun = log, begun

    def size(self) -> int:
        """Return the size in bytes."""
        return self._log.size()

    def pread(self, size: int, at: int) -> bytes:
        """Return the bytes [at, at + size)."""
        if at == 0:
            self._begun()
        return self._log.pread(size, at)


class _Opened:
    """A chunk that is opened at the first read, so that errors name the chunk's object."""

    def __init__(self, logs: ExtentLogs, at: int) -> None:
        self._logs, self._at = logs, at
        self._log: SegmentLog | None = None
        self.path = logs.path_of(logs.extents[at])

    def size(self) -> int:
        """Return the size in bytes."""
        return self._logs.extents[self._at].size

    def pread(self, size: int, at: int) -> bytes:
        """Return the bytes [at, at + size)."""
        if self._log is None:
            self._log = self._logs.open(self._at, check=True)
        return self._log.pread(size, at)


class Concatenated:
    """Consecutive logs as a single log. An error in one of them contains the path of that log."""

    def __init__(self, path: str, logs: Sequence[SegmentLog]) -> None:
        self.path, self._logs = path, list(logs)
        sizes = [log.size() for log in logs]
        self._starts = [0, *itertools.accumulate(sizes)]

    def size(self) -> int:
        """Return the size in bytes."""
        return self._starts[-1]

    def pread(self, size: int, at: int) -> bytes:
        """Return the bytes [at, at + size), fewer at the end, or before damaged data."""
        end = min(at + size, self._starts[-1])
        parts: list[bytes] = []
        number = bisect.bisect_right(self._starts, at) - 1
        while at < end:
            start, stop = self._starts[number], self._starts[number + 1]
            wanted = min(end, stop) - at
            if wanted > 0:
                try:
                    parts.append(self._logs[number].pread(wanted, at - start))
                except Exception:
                    if parts:
                        break  # return the good bytes first; the next read raises the error
                    raise
                if len(parts[-1]) < wanted:
                    break
            at, number = stop, number + 1
        return parts[0] if len(parts) == 1 else b"".join(parts)
