"""Compute which part of a compacted log is dirty, and which part may be cleaned.

The *first dirty* offset is the cleaner's checkpoint. Records from the *first uncleanable* offset on
are not cleaned. The first uncleanable offset is the smallest of the last stable offset, the active
segment's base offset, and the base offset of the first dirty segment that min.compaction.lag.ms
protects; rounded down to a segment. Source: LogCleanerManager.cleanableOffsets, LogToClean (Kafka
4.1).
"""

import bisect
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from sparklog.config import TopicConfig
from sparklog.configdef import LONG_MAX
from sparklog.storage.round_report import Dirt


class Segment(Protocol):
    """The properties of a segment that the computation needs."""

    @property
    def base(self) -> int:
        """The base offset."""

    @property
    def size(self) -> int:
        """The size of the log file in bytes."""


SegmentT = TypeVar("SegmentT", bound=Segment)


def within(segments: Sequence[SegmentT], start: int, stop: int) -> list[SegmentT]:
    """Return the segments that may contain offsets of [start, stop). Source: LogSegments.values."""
    if start >= stop:
        return []
    first = bisect.bisect_right([s.base for s in segments], start) - 1
    return [s for s in segments[max(first, 0) :] if s.base < stop]


def find_dirt(
    config: TopicConfig,
    segments: Sequence[Segment],
    *,
    checkpoint: int | None,
    log_start: int,
    end: int,
    stable: int,
    now_ms: int,
    largest: Callable[[int], int],
    earliest: Callable[[int], int],
) -> Dirt:
    """Return the dirty and the cleanable range. The last segment is the active segment.

    Args:
        stable: The last stable offset.
        end: The log end offset.
        largest: Returns the largest timestamp (ms) of a segment by its base offset.
        earliest: Returns the timestamp (ms) of a segment's first batch. Both functions are called
            only if a compaction lag is configured.
    """
    active = segments[-1].base
    first_dirty = log_start
    if checkpoint is not None and log_start <= checkpoint <= end:
        first_dirty = checkpoint
    dirty = within(segments[:-1], first_dirty, active)
    bound = min(stable, active)
    if config.min_compaction_lag_ms > 0:
        youngest = now_ms - config.min_compaction_lag_ms
        for segment in dirty:
            if segment.base >= bound:
                break
            if largest(segment.base) > youngest:
                bound = segment.base
    bound = max(first_dirty, bound)
    closed = within(segments[:-1], bound, active)
    uncleanable = closed[0].base if closed else active
    cleanable = within(segments, min(first_dirty, uncleanable), uncleanable)
    return Dirt(
        first_dirty=first_dirty,
        first_uncleanable=uncleanable,
        clean_bytes=sum(s.size for s in segments if s.base < first_dirty),
        cleanable_bytes=sum(s.size for s in cleanable),
        overdue_ms=_overdue_ms(config, dirty, now_ms, earliest),
    )


def _overdue_ms(
    config: TopicConfig, dirty: Sequence[Segment], now_ms: int, earliest: Callable[[int], int]
) -> int:
    if config.max_compaction_lag_ms == LONG_MAX:
        return 0
    firsts = [earliest(segment.base) for segment in dirty]
    oldest = min((first for first in firsts if first > 0), default=LONG_MAX)
    return max(0, now_ms - config.max_compaction_lag_ms - oldest)
