"""Decides which extents of a partition become a segment now, and why. `merging` carries it out.

Extents of commits are merged when they reach segment.bytes, by age (`diskless.merge.interval.ms`)
or by number (`diskless.merge.max.extents`). Segments that are small are merged once more: when
together they reach segment.bytes, when the oldest is older than segment.ms, or when there are too
many. So each record is rewritten twice at most, whatever the traffic.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from sparklog.common import TopicPartition
from sparklog.config import TopicConfig
from sparklog.diskless.extents import Extent, Extents
from sparklog.diskless.names import Level, level_of
from sparklog.diskless.options import UpkeepOptions
from sparklog.diskless.state import DisklessState, partitions_of
from sparklog.format.index import RELATIVE_MAX

SOURCES_MAX: Final = 10_000
"""Maximum number of extents per merge: with names of 400 bytes, half of the largest entry."""


@dataclass(frozen=True, slots=True)
class Merge:
    """Consecutive extents of a partition that are merged into segments.

    Attributes:
        key: The topic and partition.
        topic_id: The id of the topic.
        config: The topic's options.
        sources: The extents to merge, in offset order.
        level: The source of the new segments' data, which their ids contain (see `Level`).
        why: The reason of the merge, as text.
    """

    key: TopicPartition
    topic_id: str
    config: TopicConfig
    sources: Extents
    level: Level
    why: str

    @property
    def size(self) -> int:
        """The total size of the extents to merge, in bytes."""
        return sum(extent.size for extent in self.sources)


def due_merges(
    state: DisklessState,
    options: UpkeepOptions,
    *,
    now_ms: int,
    time_of: Callable[[int], int],
) -> Iterator[Merge]:
    """Yield the merges that are due, partition by partition. Merges never overlap.

    Args:
        state: The log's state.
        options: The options of the service.
        now_ms: The present time.
        time_of: Returns an entry's time (ms) by its number. It is called for the oldest of several
            consecutive extents that may be merged.
    """
    for key in partitions_of(state):
        topic = state.log.topics[key.topic]
        config = topic.parsed()
        for level, run in _runs(state.extents.get(key, ()), config, state.term):
            groups = _due(level, run, config, options, now_ms=now_ms, time_of=time_of)
            for sources, why in groups:
                yield Merge(key, topic.id, config, sources, level, why)


def _runs(extents: Extents, config: TopicConfig, term: int) -> Iterator[tuple[Level, list[Extent]]]:
    """Yield (level of the new segment, extents) for consecutive extents that can be merged."""
    run: list[Extent] = []
    before: Level | None = None
    for extent in extents:
        level = _becomes(extent, config, term)
        if level is not before and run:
            if before is not None:
                yield before, run
            run = []
        before = level
        run.append(extent)
    if run and before is not None:
        yield before, run


def _becomes(extent: Extent, config: TopicConfig, term: int) -> Level | None:
    """Return the level of the segment that an extent is merged into; None if it is not merged."""
    if not extent.segment:
        return Level.PIECES
    # Larger segments would not fit into a segment together.
    small = 2 * extent.size < config.roll_bytes
    # A segment of segments is not merged again, so that each record is rewritten at most twice.
    is_first = level_of(extent.segment, term=term) is Level.PIECES
    return Level.SEGMENTS if small and is_first else None


def _due(
    level: Level,
    run: Sequence[Extent],
    config: TopicConfig,
    options: UpkeepOptions,
    *,
    now_ms: int,
    time_of: Callable[[int], int],
) -> Iterator[tuple[Extents, str]]:
    """Yield the groups of extents to merge now, each with the reason.

    Every group but the last is due. The last group is due if it is full, old enough, or has too
    many extents.

    Args:
        level: The level of the new segments.
        run: Consecutive extents that can be merged.
        config: The topic's options.
        options: The options of the service.
        now_ms: The present time.
        time_of: Returns an entry's time (ms) by its number.
    """
    groups = list(grouped(run, config))
    for group in groups[:-1]:
        if level is Level.PIECES or len(group) > 1:
            yield group, _why_full(group, config)
    last = groups[-1]
    if level is Level.SEGMENTS and len(last) < 2:
        return  # the merge would not change anything
    if _size(last) >= config.roll_bytes:
        yield last, f"{_size(last)} bytes, segment.bytes={config.roll_bytes}"
        return
    if len(last) >= options.merge_max_extents:
        most = options.merge_max_extents
        yield last, f"{len(last)} pieces, diskless.merge.max.extents={most}"
        return
    name, allowed_ms = "diskless.merge.interval.ms", options.merge_interval_ms
    if level is Level.SEGMENTS:
        name, allowed_ms = "segment.ms", config.segment_ms
    age_ms = now_ms - time_of(last[0].born)
    if age_ms >= allowed_ms:
        yield last, f"{age_ms} ms old, {name}={allowed_ms}"


def grouped(run: Sequence[Extent], config: TopicConfig) -> Iterator[Extents]:
    """Split consecutive extents into groups, each of which is merged into a single segment.

    A group has up to segment.bytes, within the offset range of an index, and up to SOURCES_MAX
    extents, because the merge's entry contains all of them.
    """
    group: list[Extent] = []
    size = 0
    for extent in run:
        too_far = group and extent.end - group[0].base > RELATIVE_MAX
        too_many = len(group) >= SOURCES_MAX
        if group and (size + extent.size > config.roll_bytes or too_far or too_many):
            yield tuple(group)
            group, size = [], 0
        group.append(extent)
        size += extent.size
    if group:
        yield tuple(group)


def _why_full(group: Extents, config: TopicConfig) -> str:
    if len(group) >= SOURCES_MAX:
        return f"{len(group)} pieces, more than one entry names"
    return f"{_size(group)} bytes, segment.bytes={config.roll_bytes}"


def _size(group: Sequence[Extent]) -> int:
    return sum(extent.size for extent in group)
