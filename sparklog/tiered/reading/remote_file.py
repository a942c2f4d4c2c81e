"""Files of remote segments, as the engine reads local ones. Nothing can be written."""

from collections.abc import Callable
from typing import Final, Never, Protocol, Self

from sparklog.errors import InvalidRequestError
from sparklog.fs.protocol import Buffer
from sparklog.tiered.reading.range_fetcher import RUN_BYTES

AHEAD_BYTES: Final = 4 * RUN_BYTES  # how far a sequential reader is fetched ahead at most
SEQUENTIAL_BYTES: Final = 256 << 10  # read in one go, so that it's no look-up


def refuse(path: str) -> Never:
    """Raise InvalidRequestError: remote files are read-only."""
    raise InvalidRequestError(
        f"{path} is remote and can't be changed; restore it to a log dir first (sparklog tier "
        "restore)"
    )


class Ranges(Protocol):
    """A segment's log by ranges, through a cache."""

    @property
    def size(self) -> int:
        """The bytes that can be read."""

    def get(self, start: int, end: int) -> bytes:
        """Return the bytes [start, end)."""

    def ahead(self, start: int, end: int) -> None:
        """Begin to fetch them."""


class BytesFile:
    """A small file that is in memory as a whole."""

    def __init__(self, path: str, data: bytes) -> None:
        self.path, self._data = path, data

    def pread(self, size: int, at: int) -> bytes:
        return self._data[at : at + size]

    def size(self) -> int:
        return len(self._data)

    def pwrite(self, data: Buffer, at: int) -> None:
        refuse(self.path)

    def truncate(self, size: int) -> None:
        refuse(self.path)

    def sync(self) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to give back."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class RemoteLog(BytesFile):
    """A segment's log. Reads that follow each other are fetched ahead, over its end as well.

    `following` has the next segment's first bytes fetched, so many as it is given.
    """

    def __init__(self, path: str, ranges: Ranges, following: Callable[[int], object]) -> None:
        super().__init__(path, b"")
        self._ranges, self._following = ranges, following
        self._last = range(0, 0)  # the bytes of the last read
        self._begun = 0  # where the reads that follow each other began
        self._asked = 0  # how far it was fetched ahead
        self._span = 0

    def size(self) -> int:
        return self._ranges.size

    def pread(self, size: int, at: int) -> bytes:
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
            self._ranges.ahead(at, min(at + RUN_BYTES, size))
            at += RUN_BYTES
        if target > size >= self._asked:
            self._following(min(target - size, AHEAD_BYTES))
        self._asked = max(self._asked, target)
