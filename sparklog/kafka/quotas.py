"""What clients may take of a process that does other work, too: connections, memory, log lines.

Source of the keys: KafkaConfig, ConnectionQuotas in SocketServer.scala (Kafka 4.1). A broker
stops accepting where this closes: the client is told at once, and others are not kept waiting.
"""

import logging
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sparklog.clock import monotonic_ms

SMALL_BYTES: Final = 64 << 10
"""Requests up to here are not counted: Connection's own buffers are as large."""
_RATE_WINDOW_MS: Final = 1000
_LINES_MAX: Final = 20
_LINES_WINDOW_MS: Final = 10_000


@dataclass(slots=True)
class ConnectionQuotas:
    """Counts connections, by address as well. On the loop's thread.

    `connections_max`, `per_ip_max`: max.connections, max.connections.per.ip. `rate_max`: new ones
    a second (max.connection.creation.rate).
    """

    connections_max: int
    per_ip_max: int
    rate_max: int
    count: int = 0
    _by_host: Counter[str] = None  # type: ignore[assignment]
    _allowance: float = 0.0
    _seen_ms: float = 0.0

    def __post_init__(self) -> None:
        self._by_host = Counter()
        self._allowance = float(self.rate_max)

    def enter(self, host: str, now_ms: float) -> str | None:
        """Count a connection; returns why there is no room for it, None if there is."""
        passed = (now_ms - self._seen_ms) / _RATE_WINDOW_MS if self._seen_ms else 0.0
        self._seen_ms = now_ms
        self._allowance = min(self.rate_max, self._allowance + passed * self.rate_max)
        if self.count >= self.connections_max:
            return f"there are {self.count} connections already (max.connections)"
        if self._by_host[host] >= self.per_ip_max:
            return f"it has {self.per_ip_max} connections already (max.connections.per.ip)"
        if self._allowance < 1:
            return f"more than {self.rate_max} a second (max.connection.creation.rate)"
        self._allowance -= 1
        self.count += 1
        self._by_host[host] += 1
        return None

    def leave(self, host: str) -> None:
        """Forget a connection that had entered."""
        self.count -= 1
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]


class RequestMemory:
    """The bytes of large requests that are being received or worked on. On the loop's thread.

    Kafka: queued.max.request.bytes. Whoever finds no room waits in line; the first in line gets
    what becomes free, so that a large request isn't passed by small ones for ever.
    """

    def __init__(self, size_max: int) -> None:
        self.size_max, self.used = size_max, 0
        self._waiting: OrderedDict[object, tuple[int, Callable[[], None]]] = OrderedDict()

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def take(self, owner: object, size: int, wake: Callable[[], None]) -> bool:
        """Take `size` bytes; False: there is no room, and `wake` is called when they are taken.

        A request larger than all of the memory gets all of it.
        """
        size = min(size, self.size_max)
        if not self._waiting and self.used + size <= self.size_max:
            self.used += size
            return True
        self._waiting[owner] = (size, wake)
        return False

    def release(self, size: int) -> None:
        """Free what was taken; wakes those for whom there is room now."""
        self.used -= min(size, self.size_max)
        self._serve()

    def forget(self, owner: object) -> None:
        """Let one that waits go."""
        if self._waiting.pop(owner, None) is not None:
            self._serve()

    def _serve(self) -> None:
        while self._waiting:
            owner, (size, wake) = next(iter(self._waiting.items()))
            if self.used + size > self.size_max:
                return
            del self._waiting[owner]
            self.used += size
            wake()


class Progress:
    """Whether what is received comes fast enough: a request has `grace_ms`, then a byte rate.

    So a client that sends a byte a second holds nothing for long, and a slow network gets through.
    Time counts only while we read.
    """

    __slots__ = ("_bytes", "_since_ms")

    RATE_MIN: Final = 8 << 10  # bytes a second

    def __init__(self, now_ms: float) -> None:
        self._since_ms, self._bytes = now_ms, 0

    def received(self, size: int) -> None:
        """Count bytes."""
        self._bytes += size

    def paused(self, for_ms: float) -> None:
        """Leave out a time in which nothing was read, for it was us who didn't."""
        self._since_ms += for_ms

    def is_too_slow(self, now_ms: float, grace_ms: int) -> bool:
        """Tell whether it fell behind."""
        late_ms = now_ms - self._since_ms - grace_ms
        return late_ms > 0 and self._bytes < late_ms * self.RATE_MIN / 1000


class LimitedLog:
    """Lines about clients: at most 20 in ten seconds, then how many were left out.

    Anybody who can connect causes them, and nobody may fill a disk with them.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._window_ms, self._lines, self._left_out = 0.0, 0, 0

    def log(self, level: int, message: str, *given: object) -> None:
        """Write a line, if there is room."""
        now_ms = monotonic_ms()
        if now_ms - self._window_ms >= _LINES_WINDOW_MS:
            if self._left_out:
                self._logger.warning("%d lines about clients were left out", self._left_out)
            self._window_ms, self._lines, self._left_out = now_ms, 0, 0
        if self._lines >= _LINES_MAX:
            self._left_out += 1
            return
        self._lines += 1
        self._logger.log(level, message, *given)
