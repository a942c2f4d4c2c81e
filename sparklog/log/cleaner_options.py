"""Cleaner options (log.cleaner.*), and its I/O throttle."""

import threading
from collections.abc import Callable
from dataclasses import dataclass

from sparklog.clock import monotonic_ms, pause
from sparklog.errors import InvalidRequestError
from sparklog.format.compaction import LOAD_FACTOR

Throttle = Callable[[int], None]
"""Is told of bytes read or written, and takes its time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerOptions:
    """Options of one cleaning; memory beyond the map is a few windows of 4 MiB."""

    dedupe_buffer_bytes: int = 128 << 20  # log.cleaner.dedupe.buffer.size, here a partition's
    load_factor: float = LOAD_FACTOR  # log.cleaner.io.buffer.load.factor
    io_max_bytes_per_second: float | None = None  # log.cleaner.io.max.bytes.per.second

    def throttle(self) -> Throttle:
        """Make a brake; share it among threads that clean at the same time."""
        if self.io_max_bytes_per_second is None:
            return unthrottled
        return RateLimit(self.io_max_bytes_per_second)


def unthrottled(_: int) -> None:
    """Let everything pass at once."""


class RateLimit:
    """Holds the bytes of all its threads at a rate. Source: Throttler.java, without its stats.

    Time that nobody used is not saved up: at most a tenth of a second's bytes come in a burst.
    Raises: InvalidRequestError: the rate is not positive.
    """

    def __init__(
        self,
        bytes_per_second: float,
        *,
        timer: Callable[[], float] = monotonic_ms,
        sleep: Callable[[float], None] = pause,
    ) -> None:
        if not bytes_per_second > 0:
            raise InvalidRequestError(
                f"log.cleaner.io.max.bytes.per.second={bytes_per_second}: want more than 0"
            )
        self._bytes_per_ms = bytes_per_second / 1000
        self._timer, self._sleep = timer, sleep
        self._free_at = timer()  # when the bytes so far are paid for
        self._lock = threading.Lock()

    def __call__(self, size: int) -> None:
        """Wait until `size` more bytes fit the rate."""
        with self._lock:
            now = self._timer()
            self._free_at = max(self._free_at, now - 100) + size / self._bytes_per_ms
            wait = self._free_at - now
        if wait > 0:
            self._sleep(wait)
