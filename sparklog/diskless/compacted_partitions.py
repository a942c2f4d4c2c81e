"""The compacted partitions of a log in a bucket, and their dirty ratios.

Only segments are cleaned. Extents that are not merged yet count as the active segment.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from sparklog.common import TopicPartition
from sparklog.config import TopicConfig
from sparklog.diskless.extents import Extent, Extents
from sparklog.diskless.state import DisklessState, partitions_of
from sparklog.log.dirty_ratio import CompactedLog, find_dirt
from sparklog.log.due_segments import LocalSegment
from sparklog.storage.round_report import Cleanable, Dirt


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactedPartition(Cleanable):
    """A compacted partition with its dirty ratio, which the cleaner can clean.

    Attributes:
        config: The topic's options.
        closed: The segments before the first extent that is not merged yet.
    """

    config: TopicConfig
    closed: Extents

    @property
    def note(self) -> str:
        """The key of the partition in `ServiceNotes.cleaned`."""
        return note_of(self.topic_id, self.key)

    @property
    def newest(self) -> Extent | None:
        """The last segment that may be cleaned, or None."""
        closed = [e for e in self.closed if e.base < self.dirt.first_uncleanable]
        return closed[-1] if closed else None


def note_of(topic_id: str, key: TopicPartition) -> str:
    """Return the key of a partition in `ServiceNotes.cleaned`: "<topic id>/<partition>"."""
    return f"{topic_id}/{key.partition}"


def compacted_partitions(
    state: DisklessState,
    cleaned: Mapping[str, int],
    *,
    now_ms: int,
    time_of: Callable[[int], int],
    earliest: Callable[[Extent], int | None],
) -> Iterator[CompactedPartition]:
    """Yield the partitions of compacted topics.

    Args:
        cleaned: {key in the notes: first dirty offset}, as services noted it.
        time_of: Returns an entry's time (ms) by its number; used as age of extents without
            timestamps.
        earliest: Returns a segment's first timestamp (ms); called only if max.compaction.lag.ms is
            set.
    """
    for key in partitions_of(state):
        topic = state.log.topics[key.topic]
        config = topic.parsed()
        if config.compact:
            extents = state.extents.get(key, ())
            pieces = next((at for at, e in enumerate(extents) if not e.segment), len(extents))
            dirt = _dirt(
                state, key, config, pieces, cleaned.get(note_of(topic.id, key)),
                now_ms=now_ms, time_of=time_of, earliest=earliest,
            )  # fmt: skip
            yield CompactedPartition(
                topic=key.topic, partition=key.partition, topic_id=topic.id, dirt=dirt,
                wanted=dirt.wants_cleaning(config), config=config, closed=extents[:pieces],
            )  # fmt: skip


def _dirt(
    state: DisklessState,
    key: TopicPartition,
    config: TopicConfig,
    pieces: int,
    checkpoint: int | None,
    *,
    now_ms: int,
    time_of: Callable[[int], int],
    earliest: Callable[[Extent], int | None],
) -> Dirt:
    end, extents = state.log.ends[key], state.extents.get(key, ())
    by_base = {extent.base: extent for extent in extents}
    active = extents[pieces].base if pieces < len(extents) else end
    segments = [LocalSegment(e.base, e.size) for e in extents[:pieces]]
    segments.append(LocalSegment(active, sum(e.size for e in extents[pieces:])))

    def largest(base: int) -> int:
        extent = by_base[base]
        return extent.max_timestamp if extent.max_timestamp >= 0 else time_of(extent.born)

    log = CompactedLog(
        config=config, segments=segments, checkpoint=checkpoint,
        log_start=state.log.starts.get(key, 0), end=end,
        stable=end,  # a log in a bucket has no open transactions
    )  # fmt: skip
    return find_dirt(
        log, now_ms=now_ms, largest=largest, earliest=lambda base: earliest(by_base[base])
    )
