"""A remote segment's log, read by ranges through a cache, and fetched ahead of who reads on."""

from collections.abc import Callable
from typing import Final, Protocol

from sparklog.tiered.reading.range_fetcher import RUN_BYTES

AHEAD_BYTES: Final = 4 * RUN_BYTES  # how far a sequential reader is fetched ahead at most
SEQUENTIAL_BYTES: Final = 256 << 10  # read in one go, so that it's no look-up


class Ranges(Protocol):
    """A segment's log by ranges, through a cache."""

    @property
    def size(self) -> int:
        """The bytes that can be read."""

    def get(self, start: int, end: int) -> bytes:
        """Return the bytes [start, end)."""

    def prefetch(self, start: int, end: int) -> None:
        """Begin to fetch them."""


class BytesLog:
    """An index that is in memory as a whole."""

    def __init__(self, path: str, data: bytes) -> None:
        self.path, self._data = path, data

    def pread(self, size: int, at: int) -> bytes:
        """Return the bytes [at, at + size), fewer where it ends."""
        return self._data[at : at + size]

    def size(self) -> int:
        """Return the size in bytes."""
        return len(self._data)


class RemoteSegmentLog:
    """A segment's log. Reads that follow each other are fetched ahead, over its end as well.

    `following` has the next segment's first bytes fetched, so many as it is given.
    """

    def __init__(self, path: str, ranges: Ranges, following: Callable[[int], object]) -> None:
        self.path = path
        self._ranges, self._following = ranges, following
        self._last = range(0, 0)  # the bytes of the last read
        self._begun = 0  # where the reads that follow each other began
        self._asked = 0  # how far it was fetched ahead
        self._span = 0

    def size(self) -> int:
        """Return the size in bytes."""
        return self._ranges.size

    def pread(self, size: int, at: int) -> bytes:
        """Return the bytes [at, at + size), fewer where the log ends."""
        end = min(at + size, self._ranges.size)
        if not self._last.start < at <= self._last.stop:
            self._begun, self._span = at, 0
        elif end - self._begun > SEQUENTIAL_BYTES:
            self._fetch_ahead(end)
        self._last = range(at, max(at, end))
        return self._ranges.get(at, end) if at < end else b""

    def _fetch_ahead(self, end: int) -> None:
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
