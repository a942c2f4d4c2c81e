"""Recent history from the ledger: how often writers commit, and how partitions grow.

The ledger's records are read for the log's state anyway. Each record is also added to a
`CommitTrail`, whose size is bounded.
"""

from collections.abc import Iterable
from itertools import pairwise
from typing import Final, NamedTuple

from sparklog.common import TopicPartition
from sparklog.storage.commit_rate import CommitRate, RatePoint
from sparklog.storage.ledger_records import AppendRecord, CommitRecord, LedgerRecord

_POINTS_MAX: Final = 96  # per partition
_APART_MS: Final = 10_000  # closer points of a partition are merged


class GrowthPoint(NamedTuple):
    """A partition ended at `end` at `time_ms`; `bytes` were appended since the trail's start."""

    time_ms: int
    end: int
    bytes: float


class CommitTrail:
    """The recent history of commits and growth, built from ledger records. Not thread-safe."""

    def __init__(self) -> None:
        self.since_ms: int | None = None
        """The trail has all commits since this time (ms since the epoch). None: it is empty."""
        self.writers: dict[str, CommitRate] = {}
        """Commit rates by writer. Plain appends have no writer, and are not included."""
        self._growth: dict[TopicPartition, list[GrowthPoint]] = {}

    def add(self, record: LedgerRecord) -> None:
        """Add a ledger record to the history. Records must be added in ledger order."""
        if self.since_ms is None:
            self.since_ms = record.time_ms or None
        if not isinstance(record, AppendRecord):
            return
        if isinstance(record, CommitRecord):
            point = RatePoint(record.time_ms, 0, record.batch)
            known = self.writers.get(record.writer)
            self.writers[record.writer] = (known or CommitRate(record.time_ms)).after_commit(point)
        total = sum(span.end - span.first for span in record.ends.values())
        each = (record.size_bytes or 0) / total if total else 0.0
        for key, span in record.ends.items():
            self._grow(key, record.time_ms, span.first, span.end, each * (span.end - span.first))

    def _grow(self, key: TopicPartition, time_ms: int, first: int, end: int, size: float) -> None:
        points = self._growth.get(key)
        if points is None:
            points = self._growth[key] = [GrowthPoint(time_ms, first, 0.0)]
        after = GrowthPoint(max(time_ms, points[-1].time_ms), end, points[-1].bytes + size)
        if len(points) > 1 and after.time_ms - points[-2].time_ms < _APART_MS:
            points[-1] = after
            return
        points.append(after)
        if len(points) > _POINTS_MAX:
            del points[1 : _POINTS_MAX // 2 : 2]  # of the older half, every other commit

    def bytes_since(self, key: TopicPartition, since_ms: int) -> float:
        """Return how many bytes were appended to a partition after a time."""
        points = self._growth.get(key)
        if points is None:
            return 0.0
        before = max((p.bytes for p in points if p.time_ms <= since_ms), default=0.0)
        return points[-1].bytes - before

    def records_since(self, keys: Iterable[TopicPartition], since_ms: int) -> int:
        """Return by how many offsets some partitions have grown since a time."""
        found = 0
        for key in keys:
            points = self._growth.get(key)
            if points is not None:
                ends = (p.end for p in points if p.time_ms <= since_ms)
                before = max(ends, default=points[0].end)
                found += points[-1].end - before
        return found

    def written_ms(self, key: TopicPartition, offset: int) -> int | None:
        """Return the approximate commit time of the record at an offset.

        None: before the start of the trail, or not committed yet.
        """
        points = self._growth.get(key)
        if points is None or not points[0].end <= offset < points[-1].end:
            return None
        before, after = next(pair for pair in pairwise(points) if pair[1].end > offset)
        share = (offset - before.end) / (after.end - before.end)
        return round(before.time_ms + share * (after.time_ms - before.time_ms))
