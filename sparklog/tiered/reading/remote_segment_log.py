"""A remote segment's log: reads ranges through a cache, and prefetches for sequential readers."""

from collections.abc import Callable
from typing import Final, Protocol

from sparklog.tiered.reading.range_fetcher import RUN_BYTES

AHEAD_BYTES: Final = 4 * RUN_BYTES  # maximum distance of prefetching
SEQUENTIAL_BYTES: Final = 256 << 10  # sequential bytes after which prefetching starts


class Ranges(Protocol):
    """Ranges of a segment's log, through a cache."""

    @property
    def size(self) -> int:
        """Number of readable bytes."""

    def get(self, start: int, end: int) -> bytes:
        """Return the bytes [start, end)."""

    def prefetch(self, start: int, end: int) -> None:
        """Fetch the bytes [start, end) in the background."""


class BytesLog:
    """An index that is completely in memory."""

    def __init__(self, path: str, data: bytes) -> None:
        self.path, self._data = path, data

    def pread(self, size: int, at: int) -> bytes:
        """Return the bytes [at, at + size), fewer at the end."""
        return self._data[at : at + size]

    def size(self) -> int:
        """Return the size in bytes."""
        return len(self._data)


class RemoteSegmentLog:
    """The log of a remote segment. Prefetches for sequential reads, also from the next segment.

    Args:
        path: The path of the log, for messages.
        ranges: Reads ranges of the log through a cache.
        following: Prefetches this number of bytes of the next segment.
    """

    def __init__(self, path: str, ranges: Ranges, following: Callable[[int], object]) -> None:
        self.path = path
        self._ranges, self._following = ranges, following
        self._last = range(0, 0)  # the bytes of the last read
        self._begun = 0  # where the present sequential reads began
        self._asked = 0  # end of the prefetched bytes
        self._span = 0

    def size(self) -> int:
        """Return the size in bytes."""
        return self._ranges.size

    def pread(self, size: int, at: int) -> bytes:
        """Return the bytes [at, at + size), fewer at the end."""
        end = min(at + size, self._ranges.size)
        # A reader may repeat the end of its last read, because the last batch of a window is
        # usually incomplete. A jump is the end of sequential reads.
        if not self._last.start < at <= self._last.stop:
            self._begun, self._span = at, 0
        elif end - self._begun > SEQUENTIAL_BYTES:
            self._fetch_ahead(end)
        self._last = range(at, max(at, end))
        return self._ranges.get(at, end) if at < end else b""

    def _fetch_ahead(self, end: int) -> None:
        # Double the distance, so that a short read fetches little in vain and a long read is never
        # slowed down by the latency of the store.
        self._span = min(max(2 * self._span, RUN_BYTES), AHEAD_BYTES)
        target = -(-(end + self._span) // RUN_BYTES) * RUN_BYTES
        size = self._ranges.size
        at = max(self._asked, end // RUN_BYTES * RUN_BYTES)
        while at < min(target, size):
            self._ranges.prefetch(at, min(at + RUN_BYTES, size))
            at += RUN_BYTES
        if target > size >= self._asked:
            self._following(min(target - size, AHEAD_BYTES))
        self._asked = max(self._asked, target)
