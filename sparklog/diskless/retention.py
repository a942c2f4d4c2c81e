"""Retention and delete-records of a log in a bucket: an entry raises the log start.

Extents below the log start are garbage from then on. The rules that choose them are the same as in
log dirs (`sparklog.log.due_segments`); an extent counts as a segment, whether merged or not.
"""

import bisect
from collections.abc import Callable, Collection, Mapping

from sparklog.common import TopicPartition
from sparklog.diskless.extents import Extent
from sparklog.diskless.service_log import ConflictError, NewEntry, ServiceLog
from sparklog.diskless.state import DisklessState, partitions_of, term_lost
from sparklog.log.due_segments import (
    NO_CONSTRAINTS,
    DueSegments,
    LocalSegment,
    RetentionConstraints,
    due,
)
from sparklog.storage.ledger_records import StartRecord


def due_extents(
    state: DisklessState,
    terms: Mapping[TopicPartition, RetentionConstraints],
    *,
    now_ms: int,
    time_of: Callable[[int], int],
) -> dict[TopicPartition, DueSegments]:
    """Return the extents that retention may delete now, by partition.

    Partitions whose expired extents are retained only for registered readers are included, so that
    a report can name them.

    Args:
        state: The state of the log.
        terms: Log start offsets and other constraints of retention, by partition.
        now_ms: The time of the round.
        time_of: Returns the commit time (ms) of a ledger entry by its number. It is used as the age
            of extents whose records have no timestamps.
    """
    by_partition: dict[TopicPartition, DueSegments] = {}
    for key in partitions_of(state):
        extents = state.extents.get(key, ())
        if extents:
            due = _due(state, key, terms.get(key, NO_CONSTRAINTS), now_ms=now_ms, time_of=time_of)
            if due.expired or due.held_back:
                by_partition[key] = due
    return by_partition


def topic_sizes(state: DisklessState, topics: Collection[str]) -> dict[str, int]:
    """Return {topic: size in bytes of its extents}."""
    sizes: dict[str, int] = {}
    for key, extents in state.extents.items() if topics else ():
        if key.topic in topics:
            sizes[key.topic] = sizes.get(key.topic, 0) + sum(each.size for each in extents)
    return sizes


def _due(
    state: DisklessState,
    key: TopicPartition,
    terms: RetentionConstraints,
    *,
    now_ms: int,
    time_of: Callable[[int], int],
) -> DueSegments:
    extents = state.extents[key]
    filled: list[int] = []  # indexes of extents with records, computed at the first use
    numbers = {extent.base: number for number, extent in enumerate(extents)}

    def largest(base: int) -> int:
        """Return the largest timestamp of an extent, or the time of the extent's entry.

        An empty segment left by compaction is at least as old as the records after it: its own
        entry has the time of the cleaning, while Kafka's file has the time of its last append.
        """
        number = numbers[base]
        if extents[number].max_timestamp >= 0:
            return extents[number].max_timestamp
        own = time_of(extents[number].born)
        if extents[number].size:
            return own
        if not filled:
            filled.extend(at for at, extent in enumerate(extents) if extent.size)
        following = bisect.bisect_right(filled, number)
        if following == len(filled) or extents[filled[following]].max_timestamp < 0:
            return own
        return min(own, extents[filled[following]].max_timestamp)

    return due(
        [LocalSegment(extent.base, extent.size) for extent in extents],
        state.log.topics[key.topic].parsed(),
        log_start=state.log.starts.get(key, 0),
        end=state.log.ends[key],
        now_ms=now_ms,
        largest=largest,
        terms=terms,
    )


def raise_log_starts(
    log: ServiceLog,
    planned_on: DisklessState,
    starts: Mapping[TopicPartition, int],
    *,
    term: int,
) -> dict[TopicPartition, tuple[Extent, ...]]:
    """Raise log starts by a single entry; return {partition: the extents removed by it}.

    Topics that were re-created since `planned_on`, and log starts that are not higher than the
    present log starts, are skipped.

    Raises:
        LeaseLostError: The log has another term now.
    """
    ids = {name: topic.id for name, topic in planned_on.log.topics.items()}
    taken: dict[TopicPartition, tuple[Extent, ...]] = {}

    def decide(now: DisklessState) -> NewEntry:
        if now.term != term:
            raise term_lost(now, term)
        wanted = {
            key: start
            for key, start in starts.items()
            if (topic := now.log.topics.get(key.topic)) is not None
            and topic.id == ids.get(key.topic)
            and now.log.starts.get(key, 0) < start <= now.log.ends[key]
        }
        if not wanted:
            raise ConflictError(
                "the log starts are already at or above these offsets, or the topics were deleted"
            )
        # `decide` is called again after a lost race: only the extents of the last call were
        # removed.
        taken.clear()
        taken.update(
            (key, tuple(each for each in now.extents.get(key, ()) if each.end <= start))
            for key, start in wanted.items()
        )
        return NewEntry(record=StartRecord(starts=wanted, time_ms=0, epoch=0))

    if starts:
        try:
            log.create(decide)
        except ConflictError:
            return {}
    return taken
