"""Options of the log cleaner (log.cleaner.*), and a throttle of the cleaner's I/O."""

import threading
from collections.abc import Callable
from dataclasses import dataclass

from sparklog.clock import monotonic_ms, pause
from sparklog.errors import InvalidRequestError
from sparklog.format.compaction import LOAD_FACTOR

Throttle = Callable[[int], None]
"""Called with the number of bytes read or written; waits to keep the rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerOptions:
    """Options of a cleaning run, per partition.

    Attributes:
        dedupe_buffer_bytes: The memory for the offset map (log.cleaner.dedupe.buffer.size). All
            other memory is a few windows of 4 MiB.
        load_factor: The maximum used share of the offset map (log.cleaner.io.buffer.load.factor).
        io_max_bytes_per_second: The limit of reads and writes
            (log.cleaner.io.max.bytes.per.second); None for no limit.
    """

    dedupe_buffer_bytes: int = 128 << 20  # log.cleaner.dedupe.buffer.size, here per partition
    load_factor: float = LOAD_FACTOR  # log.cleaner.io.buffer.load.factor
    io_max_bytes_per_second: float | None = None  # log.cleaner.io.max.bytes.per.second

    def throttle(self) -> Throttle:
        """Return a new limit of I/O, which all threads that clean at the same time must share."""
        if self.io_max_bytes_per_second is None:
            return unthrottled
        return RateLimit(self.io_max_bytes_per_second)


def unthrottled(_: int) -> None:
    """Return at once: a `Throttle` without a limit."""


class RateLimit:
    """Limits the bytes per second that all threads read and write together.

    Unused time is not saved up: a burst is at most the bytes of a tenth of a second. Source:
    Throttler.java, without its metrics.

    Raises:
        InvalidRequestError: The rate is not positive.
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
                "log.cleaner.io.max.bytes.per.second must be greater than 0; got "
                f"{bytes_per_second}"
            )
        self._bytes_per_ms = bytes_per_second / 1000
        self._timer, self._sleep = timer, sleep
        self._free_at = timer()  # when the bytes so far are within the rate
        self._lock = threading.Lock()

    def __call__(self, size: int) -> None:
        """Wait until `size` more bytes are within the rate."""
        with self._lock:
            now = self._timer()
            self._free_at = max(self._free_at, now - 100) + size / self._bytes_per_ms
            wait = self._free_at - now
        if wait > 0:
            self._sleep(wait)
