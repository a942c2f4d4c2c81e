"""Files of remote segments, as the engine reads local ones. Nothing can be written."""

from collections.abc import Callable
from typing import Final, Never, Self

from sparklog.errors import InvalidRequestError
from sparklog.fs.protocol import Buffer
from sparklog.tiered.fetching import RUN_BYTES, Fetcher, Ranges

AHEAD_BYTES: Final = 4 * RUN_BYTES  # how far a sequential reader is fetched ahead at most
SEQUENTIAL_BYTES: Final = 256 << 10  # read in one go, so that it's no look-up


def refuse(path: str) -> Never:
    """Raise InvalidRequestError: remote files are read-only."""
    raise InvalidRequestError(
        f"{path} is remote and can't be changed; restore it to a log dir first (sparklog tier "
        "restore)"
    )


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

    `following` gives the next segment's log, None if that isn't remote.
    """

    def __init__(
        self,
        path: str,
        source: Ranges,
        fetcher: Fetcher,
        following: Callable[[], "RemoteLog | None"],
    ) -> None:
        super().__init__(path, b"")
        self._source, self._fetcher, self._following = source, fetcher, following
        self._last = range(0, 0)  # the bytes of the last read
        self._begun = 0  # where the reads that follow each other began
        self._ahead = 0  # how far it was fetched ahead
        self._span = 0

    def size(self) -> int:
        return self._source.size

    def pread(self, size: int, at: int) -> bytes:
        end = min(at + size, self._source.size)
        if not self._last.start < at <= self._last.stop:
            self._begun, self._span = at, 0
        elif end - self._begun > SEQUENTIAL_BYTES:
            self._fetch_ahead(end)
        self._last = range(at, max(at, end))
        return self._fetcher.read(self._source, at, end)

    def _fetch_ahead(self, end: int) -> None:
        self._span = min(max(2 * self._span, RUN_BYTES), AHEAD_BYTES)
        if self._ahead < end:
            self._ahead = end
        target = end + self._span
        if target - self._ahead < RUN_BYTES and target < self._source.size:
            return  # so that requests stay large
        self._fetcher.ahead(self._source, self._ahead, target)
        self._ahead = max(self._ahead, min(target, self._source.size))
        if target > self._source.size:
            following = self._following()
            if following is not None:
                following.begin(target - self._source.size)

    def begin(self, size: int) -> None:
        """Have the first bytes fetched: a reader will soon be here."""
        if size - self._ahead >= RUN_BYTES or size >= self._source.size > self._ahead:
            self._fetcher.ahead(self._source, self._ahead, size)
            self._ahead = min(size, self._source.size)
