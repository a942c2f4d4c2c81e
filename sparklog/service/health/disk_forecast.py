"""How long the disks last: what is written, net of what retention gives back.

Growth is that of the last day at most, as the ledger tells it. What retention takes by then follows
from each partition's config: a partition with retention.bytes never grows much beyond that; one
with retention.ms gives back what is older by then. What the cleaner gives back is not foreseen.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from sparklog.common import TopicPartition
from sparklog.log.due_segments import LocalSegment, retention_limits
from sparklog.logdir.retention.partition_retention import PartitionRetention
from sparklog.quantities import DAY_MS, HOUR_MS
from sparklog.service.metrics.commit_trail import CommitTrail

HORIZON_MS: Final = 30 * DAY_MS
"""Nobody foresees further."""
_STEPS_MS: Final = (
    0, HOUR_MS, 6 * HOUR_MS, 12 * HOUR_MS, DAY_MS, 2 * DAY_MS, 3 * DAY_MS, 5 * DAY_MS, 7 * DAY_MS,
    10 * DAY_MS, 14 * DAY_MS, 21 * DAY_MS, HORIZON_MS,
)  # fmt: skip
_WINDOW_MS: Final = DAY_MS
_LEAST_MS: Final = HOUR_MS  # what came in less counts as an hour's: a burst is no rate
Ages = Callable[[PartitionRetention, int], int]
"""From a partition and a segment's base to the largest timestamp there (ms)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskForecast:
    """A disk, and the log dirs on it. `rate`: bytes written a ms; `over_ms`: seen over so long.

    `full_ms`: in how long it is full; None: not within the horizon, or nothing is written.
    `recent_rate`: that of the last hour: 0 once an import is over that filled the day's rate.
    """

    directories: tuple[str, ...]
    free_bytes: int
    total_bytes: int | None = None
    rate: float = 0.0
    over_ms: int = 0
    full_ms: float | None = None
    recent_rate: float = 0.0


def forecast(
    directories: Sequence[str],
    free_bytes: int,
    total_bytes: int | None,
    places: Mapping[TopicPartition, PartitionRetention],
    held: Mapping[TopicPartition, Sequence[LocalSegment]],
    trail: CommitTrail,
    *,
    ages: Ages,
    now_ms: int,
) -> DiskForecast:
    """Return when a disk is full whose partitions are `places`.

    Cost: arithmetic; only where it would be full within the horizon without retention, `ages` is
    asked for the segments that age takes.
    """
    names = tuple(directories)
    if trail.since_ms is None:
        return DiskForecast(directories=names, free_bytes=free_bytes, total_bytes=total_bytes)
    since_ms = max(trail.since_ms, now_ms - _WINDOW_MS)
    over_ms = max(now_ms - since_ms, _LEAST_MS)
    rates = {key: trail.bytes_since(key, since_ms) / over_ms for key in places}
    rate = sum(rates.values())
    hour_ago_ms = now_ms - HOUR_MS
    recent = sum(trail.bytes_since(key, hour_ago_ms) for key in places) / HOUR_MS
    full_ms: float | None = None
    if rate > 0 and free_bytes / rate <= HORIZON_MS:
        growth = [0.0] * len(_STEPS_MS)
        for key, place in places.items():
            grown = _grown(place, held.get(key, ()), rates[key], ages, now_ms)
            growth = [a + b for a, b in zip(growth, grown, strict=True)]
        full_ms = _crossing(growth, free_bytes)
    return DiskForecast(
        directories=names, free_bytes=free_bytes, total_bytes=total_bytes, rate=rate,
        over_ms=over_ms, full_ms=full_ms, recent_rate=recent,
    )  # fmt: skip


def _grown(
    place: PartitionRetention,
    segments: Sequence[LocalSegment],
    rate: float,
    ages: Ages,
    now_ms: int,
) -> list[float]:
    """By how many bytes a partition is larger at each step."""
    config = place.config
    is_tiered = config.remote_storage_enable and not config.compact
    most_bytes, most_ms = retention_limits(config, local=is_tiered)
    now_bytes = sum(segment.size for segment in segments)
    dated: list[tuple[int, int]] = []
    if config.delete and most_ms >= 0 and now_bytes:
        dated = [(ages(place, segment.base), segment.size) for segment in segments]
    found = []
    for step_ms in _STEPS_MS:
        size = now_bytes + rate * step_ms
        if config.delete and most_ms >= 0:
            size -= sum(one for at_ms, one in dated if at_ms < now_ms + step_ms - most_ms)
            size -= rate * max(0, step_ms - most_ms - config.roll_ms)
        if config.delete and most_bytes >= 0:
            size = min(size, max(now_bytes, most_bytes) + config.roll_bytes)
        found.append(max(0.0, size) - now_bytes)
    return found


def _crossing(growth: Sequence[float], free_bytes: int) -> float | None:
    """When the growth first is as large as what is free, between two steps in a straight line."""
    points = list(zip(_STEPS_MS, growth, strict=True))
    for (low_ms, low), (high_ms, high) in pairwise(points):
        if high >= free_bytes:
            share = (free_bytes - low) / (high - low) if high > low else 0.0
            return low_ms + max(0.0, share) * (high_ms - low_ms)
    return None
