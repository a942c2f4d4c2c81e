"""Forecasts when disks will be full: the write rate, less what retention deletes.

The write rate is measured over the last day at most, by the ledger. Future deletions follow from
each partition's config: `retention.bytes` limits the size, and `retention.ms` deletes segments that
will be older by then. Space that the cleaner will free is not included.
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
"""How far ahead a forecast goes."""
_STEPS_MS: Final = (
    0, HOUR_MS, 6 * HOUR_MS, 12 * HOUR_MS, DAY_MS, 2 * DAY_MS, 3 * DAY_MS, 5 * DAY_MS, 7 * DAY_MS,
    10 * DAY_MS, 14 * DAY_MS, 21 * DAY_MS, HORIZON_MS,
)  # fmt: skip
_WINDOW_MS: Final = DAY_MS
_LEAST_MS: Final = HOUR_MS  # a shorter time counts as an hour: a burst is not a rate
Ages = Callable[[PartitionRetention, int], int]
"""Returns the largest timestamp (ms) of a partition's segment, given its base offset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskForecast:
    """A disk with log dirs, and the time when the disk will be full.

    Attributes:
        rate: Bytes written per ms, measured over `over_ms`.
        full_ms: The time until the disk is full; None beyond the horizon, or without writes.
        recent_rate: Bytes per ms in the last hour. 0 once a large import has ended.
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
    """Return the forecast of the disk that stores the partitions `places`.

    Cost: arithmetic. Only if the disk would be full within the horizon without retention, `ages` is
        called for the segments that retention.ms may delete.
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
    """Return by how many bytes a partition will have grown at each step."""
    config = place.config
    is_tiered = config.remote_storage_enable and not config.compact
    most_bytes, most_ms = retention_limits(config, local=is_tiered)
    now_bytes = sum(segment.size for segment in segments)
    dated: list[tuple[int, int]] = []
    if config.delete and most_ms >= 0 and now_bytes:
        dated = [(ages(place, segment.base), segment.size) for segment in segments]
    growth = []
    for step_ms in _STEPS_MS:
        size = now_bytes + rate * step_ms
        if config.delete and most_ms >= 0:
            expiring_ms = now_ms + step_ms - most_ms
            size -= sum(size_bytes for at_ms, size_bytes in dated if at_ms < expiring_ms)
            size -= rate * max(0, step_ms - most_ms - config.roll_ms)
        if config.delete and most_bytes >= 0:
            size = min(size, max(now_bytes, most_bytes) + config.roll_bytes)
        growth.append(max(0.0, size) - now_bytes)
    return growth


def _crossing(growth: Sequence[float], free_bytes: int) -> float | None:
    """Return when the growth reaches `free_bytes`, interpolated linearly between two steps."""
    points = list(zip(_STEPS_MS, growth, strict=True))
    for (low_ms, low), (high_ms, high) in pairwise(points):
        if high >= free_bytes:
            share = (free_bytes - low) / (high - low) if high > low else 0.0
            return low_ms + max(0.0, share) * (high_ms - low_ms)
    return None
