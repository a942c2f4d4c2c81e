"""Limits of a request in bytes and time. A request also ends when its client disconnects."""

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
    """The limits of a request.

    Attributes:
        records: The maximum number of records.
        read_bytes: The maximum bytes read from the log. The last read may exceed the limit by a
            batch.
        kept_bytes: The maximum memory for records until the page is complete.
        batch_bytes: The maximum size of a record batch, before and after decompression. Larger
            batches are skipped, and the page says so: a few bytes may decompress to any size.
        time_ms: The maximum time.
    """

    records: int = 50
    read_bytes: int = 64 * MIB
    kept_bytes: int = 128 * MIB
    batch_bytes: int = 160 * MIB
    time_ms: int = 5000


class Budget:
    """Tracks how much of the limits a request has used. Not thread-safe.

    Args:
        limits: The limits.
        gone: Returns True if the client has disconnected. Called between reads.
    """

    def __init__(self, limits: Limits, *, gone: Callable[[], bool] = lambda: False) -> None:
        self.limits = limits
        self._gone = gone
        self._until_ms = monotonic_ms() + limits.time_ms
        self.read_bytes = 0
        self.kept_bytes = 0

    @property
    def over(self) -> str:
        """The reason why the request must end, or "" if the request may continue.

        The reason "gone" means that the client has disconnected; the others are limits: "bytes",
        "memory", "time".
        """
        if self._gone():
            return "gone"
        if self.read_bytes >= self.limits.read_bytes:
            return "bytes"
        if self.kept_bytes >= self.limits.kept_bytes:
            return "memory"
        return "time" if monotonic_ms() >= self._until_ms else ""

    @property
    def stopped(self) -> bool:
        """Whether a wait for remote storage must end."""
        return self._gone() or monotonic_ms() >= self._until_ms


class ChunkReadBudget(ReadBudget):
    """Limits a read to `max_bytes` of whole batches.

    The first batch may be larger, up to `batch_bytes`, so that every read makes progress.
    """

    def __init__(self, max_bytes: int, batch_bytes: int) -> None:
        super().__init__(max_bytes)
        self._batch_bytes = batch_bytes
        self.refused_bytes = 0  # size of a first batch larger than `batch_bytes`

    def fits(self, size: int) -> bool:
        """Return whether a batch of `size` bytes may be read next."""
        if not self.at_least_one:  # a batch was read already
            return super().fits(size)
        if size > self._batch_bytes:
            self.refused_bytes = size
            return False
        return True
