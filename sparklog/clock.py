"""Time as a component, so that tests and simulations can turn it. Nobody else asks the system."""

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

Clock = Callable[[], int]
"""Returns milliseconds since the epoch (UTC), as Kafka's `Time.milliseconds`."""


def system_clock() -> int:
    """The machine's wall clock, in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def iso(time_ms: int) -> str:
    """A time (ms since the epoch) for people: ISO 8601, in UTC."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")


class ManualClock:
    """A clock that stands still until it is told to move."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms

    def advance(self, ms: int) -> None:
        """Move on by `ms` milliseconds."""
        self.now_ms += ms


def attempts(timeout_ms: int, *, pause_ms: float = 0.2, longest_ms: float = 20) -> Iterator[int]:
    """Yield 0, 1, 2, ... with growing pauses between, until `timeout_ms` have passed.

    For polling what can't be waited for: the first attempt comes at once, at least one comes.
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
    """Let `ms` milliseconds pass, for a reader that waits for more."""
    time.sleep(ms / 1000)


def monotonic_ms() -> float:
    """Milliseconds of a clock that never goes back, for measuring how long something takes."""
    return time.monotonic() * 1000


def stopwatch() -> Callable[[], int]:
    """Start one; each call of it returns the whole milliseconds since. For logs, never for data."""
    began = monotonic_ms()
    return lambda: int(monotonic_ms() - began)
