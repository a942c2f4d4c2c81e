"""Reads input files with hashing and counting. A slow pipe returns partial data after a while."""

import os
import select
from collections.abc import Callable
from typing import Any, BinaryIO, Final

from sparklog.clock import monotonic_ms

_LOOK_MS: Final = 100  # how often a silent pipe is polled for its end
_PIPE_BYTES: Final = 1 << 20


class Stopped(Exception):
    """A signal ended the input. An incomplete record must be discarded."""


class Linger:
    """Limits how long data that was read from a pipe waits for a commit.

    Data waits at most for the given time (ms). With None the data waits until there is enough for a
    commit.
    """

    def __init__(self, most_ms: int | None = None) -> None:
        self.most_ms = most_ms
        self._since: float | None = None

    @property
    def waits(self) -> bool:
        """Whether data was read since the last commit."""
        return self._since is not None

    def came(self) -> None:
        """Record that data was read."""
        if self._since is None:
            self._since = monotonic_ms()

    def is_over(self) -> bool:
        """Return True if data has waited for the maximum time and must be committed now."""
        since = self._since
        return (
            self.most_ms is not None
            and since is not None
            and monotonic_ms() - since >= self.most_ms
        )

    def done(self) -> None:
        """Restart after a commit of all data read."""
        self._since = None


class Source:
    """An open binary file. For a pipe, `read` returns partial data once `linger` is over."""

    def __init__(
        self,
        file: BinaryIO,
        digest: Any,
        seen: Callable[[int], None],
        *,
        linger: Linger,
        stopped: Callable[[], bool],
    ) -> None:
        self._file, self._digest, self._seen = file, digest, seen
        self._linger, self._stopped = linger, stopped
        self._pipe = None if file.seekable() else _number(file)
        self.closed = False

    def read(self, size: int) -> bytes | None:
        """Return data, or b"" at the end of the input.

        Returns None when a pipe has no data yet but earlier data must be committed.

        Raises:
            Stopped: A signal ended the input.
        """
        if self._pipe is None:
            if self._stopped():
                raise Stopped
            data: bytes | None = self._file.read(size)
        else:
            data = self._read_pipe(self._pipe, size)
        if data:
            self._digest.update(data)
            self._seen(len(data))
        return data

    def whole(self, size: int) -> bytes:
        """Return data like `read`, for callers that cannot handle None."""
        while (data := self.read(size)) is None:
            pass
        return data

    def _read_pipe(self, pipe: int, size: int) -> bytes | None:
        found: list[bytes] = []
        held = 0
        most_ms = self._linger.most_ms
        began = monotonic_ms() if self._linger.waits else None
        poll = select.poll()
        poll.register(pipe, select.POLLIN)
        while held < size:
            # The poll ends every _LOOK_MS even without a limit: a signal only sets `stopped`, and
            # Python repeats a poll that a signal interrupted.
            left = None if began is None or most_ms is None else began + most_ms - monotonic_ms()
            if left is not None and left <= 0:
                return b"".join(found) or None
            if not poll.poll(_LOOK_MS if left is None else min(_LOOK_MS, left)):
                if self._stopped():
                    break
                continue
            # Not file.read: it blocks until the buffer is full, and would hold back a slow pipe.
            data = os.read(pipe, min(_PIPE_BYTES, size - held))
            if not data:
                break
            self._linger.came()
            began = monotonic_ms() if began is None else began
            found.append(data)
            held += len(data)
            if self._stopped():
                break
        # also at the end, because the writer may have been stopped as well
        if self._stopped() and not found:
            raise Stopped
        return b"".join(found)


class Readable:
    """A source as a file object for Arrow, which cannot handle None."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.closed = False

    def read(self, size: int) -> bytes:
        return self._source.whole(size)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def writable(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True


def _number(file: BinaryIO) -> int | None:
    try:
        return file.fileno()
    except OSError:
        return None
