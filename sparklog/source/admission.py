"""The limits maxOffsetsPerTrigger, maxBytesPerTrigger, minOffsetsPerTrigger and maxTriggerDelay.

Spark passes a Python source its own default limit back and has no composite limits, so all limits
are combined here. Source: KafkaMicroBatchStream.rateLimit and delayBatch.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sparklog.common import TopicPartition
from sparklog.source.offsets import Offsets


@dataclass(frozen=True, slots=True)
class BytesByOffset:
    """The size of a log by offset: points (offset, bytes before the offset) in ascending order.

    Between two points, sizes are interpolated linearly.
    """

    offsets: npt.NDArray[np.float64]
    positions: npt.NDArray[np.float64]

    @classmethod
    def of(cls, points: list[tuple[int, int]]) -> "BytesByOffset":
        """Return the map for a non-empty list of (offset, position) pairs."""
        table = np.array(sorted(points), dtype=np.float64)
        return cls(table[:, 0], table[:, 1])

    def between(self, start: int, end: int) -> int:
        """Return approximately how many bytes the offsets [start, end) take."""
        low, high = np.interp([start, end], self.offsets, self.positions)
        return int(high - low)

    def offset_after(self, start: int, size: float) -> int:
        """Return the offset about `size` bytes behind offset `start`."""
        at = float(np.interp(start, self.offsets, self.positions))
        return int(np.interp(at + size, self.positions, self.offsets))


def by_records(limit: int, start: Offsets, end: Offsets) -> Offsets:
    """Reduce `end` so that [start, end) has about `limit` records, shared out by backlog.

    Every partition with a backlog gets at least one record, so that small partitions progress too.
    """
    backlog = {p: offset - start[p] for p, offset in end.items() if offset > start[p]}
    total = sum(backlog.values())
    if total <= limit:
        return end
    shares = {p: limit * size / total for p, size in backlog.items()}
    return end | {
        p: min(end[p], start[p] + (math.ceil(share) if share < 1 else math.floor(share)))
        for p, share in shares.items()
    }


def by_bytes(
    limit: int,
    start: Offsets,
    end: Offsets,
    sizes: Callable[[TopicPartition, int, int], BytesByOffset],
) -> Offsets:
    """Reduce `end` so that [start, end) has about `limit` bytes of log, shared out by backlog.

    A partition with a share smaller than its next record gets that record.
    """
    maps = {p: sizes(p, start[p], offset) for p, offset in end.items() if offset > start[p]}
    backlog = {p: size.between(start[p], end[p]) for p, size in maps.items()}
    total = sum(backlog.values())
    if total <= limit:
        return end
    cut = dict(end)
    for p, size in maps.items():
        share = limit * backlog[p] / total
        # At least one offset, or a record larger than its share would stop the partition forever.
        cut[p] = min(end[p], max(start[p] + 1, size.offset_after(start[p], share)))
    return cut


class MinOffsetsDelay:
    """Delays a micro-batch until enough records are available (option minOffsetsPerTrigger).

    The first micro-batch after a start or restart is never delayed.

    Args:
        least: The number of records to wait for; None for no delay.
        longest_ms: The longest delay (option maxTriggerDelay).
    """

    def __init__(self, least: int | None, longest_ms: int) -> None:
        self._least, self._longest_ms = least, longest_ms
        self._last_ms: int | None = None

    def wait(self, start: Offsets, end: Offsets, now_ms: int) -> bool:
        """Return whether this trigger should get no data yet."""
        if self._least is None:
            return False
        fresh = sum(offset - start[p] for p, offset in end.items() if offset > start[p])
        overdue = self._last_ms is None or now_ms - self._last_ms > self._longest_ms
        if fresh >= self._least or overdue:
            self._last_ms = now_ms
            return False
        return True
