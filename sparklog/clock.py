"""The only module that reads the system clock; injectable for tests and simulations."""

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

Clock = Callable[[], int]
"""Returns milliseconds since the epoch (UTC), as Kafka's `Time.milliseconds`."""


def system_clock() -> int:
    """Return the machine's wall clock time in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def iso(time_ms: int) -> str:
    """Format a time (ms since the epoch) as ISO 8601 in UTC."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")


class ManualClock:
    """A clock that moves only by `advance`.

    Args:
        now_ms: The initial time, in milliseconds since the epoch.

    Examples:
        >>> from sparklog.testing import ManualClock
        >>> clock = ManualClock(now_ms=1_000)
        >>> clock.advance(500)
        >>> clock()
        1500
    """

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        """Return the time, in milliseconds since the epoch."""
        return self.now_ms

    def advance(self, ms: int) -> None:
        """Advance the clock.

        Args:
            ms: The duration, in milliseconds.
        """
        self.now_ms += ms


def attempts(timeout_ms: int, *, pause_ms: float = 0.2, longest_ms: float = 20) -> Iterator[int]:
    """Yield 0, 1, 2, ... with growing pauses until `timeout_ms` have passed, for polling.

    The first number is yielded at once, even if the timeout is 0.
    """
    end = time.monotonic() + timeout_ms / 1000
    attempt = 0
    while True:
        yield attempt
        left = end - time.monotonic()
        if left <= 0:
            return
        time.sleep(min(left, pause_ms / 1000))
        pause_ms = min(pause_ms * 1.5, longest_ms)
        attempt += 1


def pause(ms: float) -> None:
    """Wait for `ms` milliseconds."""
    time.sleep(ms / 1000)


def monotonic_ms() -> float:
    """Return the milliseconds of a monotonic clock, which measures durations."""
    return time.monotonic() * 1000


def stopwatch() -> Callable[[], int]:
    """Return a function that returns the milliseconds since this call. For logs, never for data."""
    began = monotonic_ms()
    return lambda: int(monotonic_ms() - began)
