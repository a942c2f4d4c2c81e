"""Limits of one request in bytes and time, and cancellation when the client disconnects."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sparklog.clock import monotonic_ms
from sparklog.log.partition_reader import ReadBudget

MIB: Final = 1 << 20
RECORDS_MAX: Final = 500
"""Maximum records per request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a request.

    `read_bytes`: bytes of log; a single read may exceed them by `batch_bytes`. `kept_bytes`: memory
    of the records until the page is complete. `batch_bytes`: larger record batches, compressed or
    not, are left out with a note, because a few bytes may decompress to any size.
    """

    records: int = 50
    read_bytes: int = 64 * MIB
    kept_bytes: int = 128 * MIB
    batch_bytes: int = 160 * MIB
    time_ms: int = 5000


class Budget:
    """The remaining limits of one request. Used by one thread.

    `gone`: returns True if the client has disconnected; called between reads.
    """

    def __init__(self, limits: Limits, *, gone: Callable[[], bool] = lambda: False) -> None:
        self.limits = limits
        self._gone = gone
        self._until_ms = monotonic_ms() + limits.time_ms
        self.read_bytes = 0
        self.kept_bytes = 0

    @property
    def over(self) -> str:
        """Why the request must end: "bytes", "memory", "time", "gone"; "" if it may continue."""
        if self._gone():
            return "gone"
        if self.read_bytes >= self.limits.read_bytes:
            return "bytes"
        if self.kept_bytes >= self.limits.kept_bytes:
            return "memory"
        return "time" if monotonic_ms() >= self._until_ms else ""

    @property
    def stopped(self) -> bool:
        """Whether a wait for remote storage should end."""
        return self._gone() or monotonic_ms() >= self._until_ms


class ChunkReadBudget(ReadBudget):
    """Limits a read to some bytes of whole batches. A single batch may have up to `batch_bytes`."""

    def __init__(self, max_bytes: int, batch_bytes: int) -> None:
        super().__init__(max_bytes)
        self._batch_bytes = batch_bytes
        self.refused_bytes = 0  # of a batch that was too large to be read at all

    def fits(self, size: int) -> bool:
        """Tell whether a batch of `size` bytes may come next."""
        if not self.at_least_one:
            return super().fits(size)
        if size > self._batch_bytes:
            self.refused_bytes = size
            return False
        return True
