"""Limits for clients: connections, request memory, and log lines.

Source of the keys: KafkaConfig, ConnectionQuotas in SocketServer.scala (Kafka 4.1). A broker stops
accepting connections at its limit. The endpoint closes them instead, so that the client notices at
once and other clients do not wait.
"""

import logging
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sparklog.clock import monotonic_ms

SMALL_BYTES: Final = 64 << 10
"""Requests up to this size are not counted; each connection has buffers of this size anyway."""
_RATE_WINDOW_MS: Final = 1000
_LINES_MAX: Final = 20
_LINES_WINDOW_MS: Final = 10_000


@dataclass(slots=True)
class ConnectionQuotas:
    """Counts connections, in total and by address. Used on the event loop's thread.

    `connections_max`, `per_ip_max`: max.connections, max.connections.per.ip. `rate_max`: new
    connections per second (max.connection.creation.rate).
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
        """Count a connection. Return None, or the limit that it exceeds."""
        passed = (now_ms - self._seen_ms) / _RATE_WINDOW_MS if self._seen_ms else 0.0
        self._seen_ms = now_ms
        # A token bucket that holds a second's worth: a burst after a quiet time is accepted.
        self._allowance = min(self.rate_max, self._allowance + passed * self.rate_max)
        if self.count >= self.connections_max:
            return f"there are {self.count} connections already (max.connections)"
        if self._by_host[host] >= self.per_ip_max:
            return f"the address has {self.per_ip_max} connections already (max.connections.per.ip)"
        if self._allowance < 1:
            return f"more than {self.rate_max} per second (max.connection.creation.rate)"
        self._allowance -= 1
        self.count += 1
        self._by_host[host] += 1
        return None

    def leave(self, host: str) -> None:
        """Remove a connection that was counted."""
        self.count -= 1
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]


class RequestMemory:
    """Memory of large requests that are being received or processed. On the event loop's thread.

    Kafka: queued.max.request.bytes. Requests that do not fit wait in order. Memory goes to the
    first in the queue, so small requests cannot overtake a large request for ever.
    """

    def __init__(self, size_max: int) -> None:
        self.size_max, self.used = size_max, 0
        self._waiting: OrderedDict[object, tuple[int, Callable[[], None]]] = OrderedDict()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def take(self, owner: object, size: int, wake: Callable[[], None]) -> bool:
        """Reserve `size` bytes.

        Return False if there is no room; `wake` is called once they are reserved.
        A request that is larger than the limit reserves all memory.
        """
        size = min(size, self.size_max)
        if not self._waiting and self.used + size <= self.size_max:
            self.used += size
            return True
        self._waiting[owner] = (size, wake)
        return False

    def release(self, size: int) -> None:
        """Release reserved memory, and wake requests that now fit."""
        self.used -= min(size, self.size_max)
        self._serve()

    def forget(self, owner: object) -> None:
        """Remove a waiting request."""
        if self._waiting.pop(owner, None) is not None:
            self._serve()  # it may have been the large request that all others waited behind

    def _serve(self) -> None:
        while self._waiting:
            owner, (size, wake) = next(iter(self._waiting.items()))
            if self.used + size > self.size_max:
                return
            del self._waiting[owner]
            self.used += size
            wake()


class Progress:
    """Whether a request arrives fast enough: any rate for `grace_ms`, then a minimum byte rate.

    A client that sends a byte per second therefore cannot block a connection, and a slow network
    still works. Only time during which the endpoint reads counts.
    """

    __slots__ = ("_bytes", "_since_ms")

    RATE_MIN: Final = 8 << 10  # bytes per second

    def __init__(self, now_ms: float) -> None:
        self._since_ms, self._bytes = now_ms, 0

    def received(self, size: int) -> None:
        """Count received bytes."""
        self._bytes += size

    def paused(self, for_ms: float) -> None:
        """Exclude a period in which the endpoint did not read."""
        self._since_ms += for_ms

    def is_too_slow(self, now_ms: float, grace_ms: int) -> bool:
        """Return True if the request is below the minimum rate."""
        late_ms = now_ms - self._since_ms - grace_ms
        return late_ms > 0 and self._bytes < late_ms * self.RATE_MIN / 1000


class LimitedLog:
    """Log lines about clients: at most 20 per 10 seconds, then the number of suppressed lines.

    Any client that can connect causes such lines, and must not be able to fill a disk with them.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._window_ms, self._lines, self._left_out = 0.0, 0, 0

    def log(self, level: int, message: str, *given: object) -> None:
        """Write a line, or count it as suppressed."""
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
