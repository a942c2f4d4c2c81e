"""Compute which part of a compacted log is dirty, and which part may be cleaned.

The *first dirty* offset is the cleaner's checkpoint. Records from the *first uncleanable* offset on
are not cleaned. The first uncleanable offset is the smallest of the last stable offset, the active
segment's base offset, and the base offset of the first dirty segment that min.compaction.lag.ms
protects; rounded down to a segment. Source: LogCleanerManager.cleanableOffsets, LogToClean (Kafka
4.1).
"""

import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from sparklog.config import TopicConfig
from sparklog.configdef import LONG_MAX
from sparklog.storage.round_report import Dirt


class Segment(Protocol):
    """The properties of a segment that `find_dirt` needs."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactedLog:
    """The log of a compacted partition.

    Attributes:
        config: The topic's config.
        segments: The segments; the last is the active segment.
        checkpoint: The offset up to which the log was cleaned, if it was.
        log_start: The log start offset.
        end: The log end offset.
        stable: The last stable offset.
    """

    config: TopicConfig
    segments: Sequence[Segment]
    checkpoint: int | None
    log_start: int
    end: int
    stable: int


def find_dirt(
    log: CompactedLog,
    *,
    now_ms: int,
    largest: Callable[[int], int],
    earliest: Callable[[int], int | None],
) -> Dirt:
    """Return the dirty part and the cleanable part of a partition's log.

    Args:
        log: The partition's log.
        now_ms: The current time.
        largest: Returns the largest timestamp (ms) of a segment by its base offset.
        earliest: Returns the timestamp (ms) of a segment's first batch. Both functions are called
            only if a compaction lag is configured.
    """
    config, segments, active = log.config, log.segments, log.segments[-1].base
    first_dirty = max(log.log_start, segments[0].base)
    # As Kafka: a checkpoint outside of the log is invalid, so cleaning starts at the beginning.
    if log.checkpoint is not None and first_dirty <= log.checkpoint <= log.end:
        first_dirty = log.checkpoint
    dirty = within(segments[:-1], first_dirty, active)
    # As Kafka: neither the active segment nor records at or above the last stable offset, whose
    # transactions may still be open, are cleaned.
    bound = min(log.stable, active)
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
    config: TopicConfig,
    dirty: Sequence[Segment],
    now_ms: int,
    earliest: Callable[[int], int | None],
) -> int:
    if config.max_compaction_lag_ms == LONG_MAX:
        return 0
    firsts = [earliest(segment.base) for segment in dirty]
    # As Kafka: a batch without a timestamp never makes a segment overdue.
    oldest = min((first for first in firsts if first is not None and first > 0), default=LONG_MAX)
    return max(0, now_ms - config.max_compaction_lag_ms - oldest)
