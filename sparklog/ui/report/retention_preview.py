"""Previews retention and compaction: applies the rules of the service to later times.

The preview deletes and changes no files.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence

from sparklog.common import TopicPartition
from sparklog.config import TopicConfig
from sparklog.fs import FileSystem
from sparklog.log.dirty_ratio import CompactedLog
from sparklog.log.due_segments import (
    NEVER_MS,
    DueSegments,
    LocalSegment,
    RetentionConstraints,
    due,
)
from sparklog.log.partition_reader import reader_of
from sparklog.logdir.cleaning.plan import Segment, find_dirt, list_segments
from sparklog.logdir.offset_checkpoints import CLEANER, read_offsets
from sparklog.storage.segments import StaleReadError
from sparklog.storage.view import View
from sparklog.tiered.copying import plan
from sparklog.tiered.remote_segment import RemoteSegment
from sparklog.ui.report.model import HORIZONS_MS, CompactionReport, ExpiringSegments, Where
from sparklog.ui.report.segments import ListedSegments

Taken = tuple[str, Where, int, int]  # rule, where, bytes, end


def preview_retention(
    listed: ListedSegments,
    config: TopicConfig,
    copies: list[RemoteSegment],
    *,
    floor: Callable[[int], int | None],
    now_ms: int,
) -> tuple[list[ExpiringSegments], int | None, int]:
    """Predict the deletions of a partition within HORIZONS_MS.

    Cost: a pass over the segments for each horizon. No file is read.

    Args:
        listed: The segments of the partition.
        config: The configs of the topic.
        copies: The valid remote segments.
        floor: Returns, for a time in ms, the position of the slowest registered reader that
            retention respects. The position depends on the time, because silent readers expire.
        now_ms: The time of the report.

    Returns:
        The deletions; the time (ms) of the next deletion by age, or None; the bytes of expired
        segments that are retained for a registered reader.
    """
    held = [LocalSegment(s.base, s.bytes) for s in listed.segments if s.where is not Where.REMOTE]
    tier = plan.tier_of(config, copies)
    log_start = listed.start
    # Without remote storage, a log can't start below its first local segment.
    if tier is None and held:
        log_start = max(log_start, held[0].base)

    def copied(at_ms: int) -> DueSegments:
        return plan.expired_segments(
            copies, held, config, log_start=log_start, now_ms=at_ms, floor=floor(at_ms)
        )

    def local(at_ms: int) -> tuple[list[Taken], float, int]:
        # Same order as in the service's rounds: copies are deleted first, which raises the log
        # start offset.
        start = copied(at_ms).log_start if copies and tier else log_start
        found = due(
            held, config, log_start=start, end=listed.end, now_ms=at_ms,
            largest=listed.ages.__getitem__,
            terms=RetentionConstraints(floor(at_ms), tier),
        )  # fmt: skip
        where = Where.LOCAL if found.local else Where.BOTH
        gone = [(e.rule, where, e.bytes, e.end) for e in found.expired]
        return gone, found.next_ms, found.held_back

    def remote(at_ms: int) -> list[Taken]:
        gone = copied(at_ms).expired if copies else ()
        return [(e.rule, Where.REMOTE, e.bytes, e.end) for e in gone]

    _, next_ms, held_back = local(now_ms)
    ways = (lambda at: local(at)[0], remote)
    going = [one for way in ways for one in _steps({h: way(now_ms + h) for h in HORIZONS_MS})]
    going.sort(key=lambda one: one.within_ms)
    return going, None if next_ms == NEVER_MS else int(next_ms), held_back


def _steps(by_horizon: Mapping[int, list[Taken]]) -> Iterator[ExpiringSegments]:
    """Yield, for each horizon and rule, the deletions that the previous horizon does not have."""
    known = 0
    for within_ms, taken in by_horizon.items():
        added: dict[tuple[str, Where], list[Taken]] = {}
        for one in taken[known:]:
            added.setdefault(one[:2], []).append(one)
        known = max(known, len(taken))
        for (rule, where), gone in added.items():
            yield ExpiringSegments(
                within_ms=within_ms,
                rule=rule,
                where=where,
                segments=len(gone),
                bytes=sum(size for _, _, size, _ in gone),
                end=max(end for *_, end in gone),
            )


def compaction(
    fs: FileSystem,
    view: View,
    key: TopicPartition,
    listed: ListedSegments,
    config: TopicConfig,
    *,
    now_ms: int,
) -> CompactionReport | None:
    """Return how dirty a compacted partition is.

    Returns:
        The report, or None if the partition has no local segments, or its files change during the
        computation.

    Raises:
        DataCorruptionError: The cleaner's checkpoint is damaged.
    """
    reader = reader_of(view, *key)
    try:
        segments = list_segments(fs, reader.where)
        stable = reader.last_stable_offset(listed.end)
        if not segments:
            return None
        log = CompactedLog(
            config=config,
            segments=segments,
            checkpoint=read_offsets(fs, os.path.dirname(reader.where), CLEANER).get(key),
            log_start=listed.start,
            end=listed.end,
            stable=stable,
        )
        dirt = find_dirt(fs, reader.where, log, now_ms=now_ms)
    except (FileNotFoundError, StaleReadError):
        return None
    clean = _density([s for s in segments if s.base < dirt.first_dirty], dirt.first_dirty)
    dirty = _density([s for s in segments if s.base >= dirt.first_dirty], listed.end)
    return CompactionReport(
        first_dirty=dirt.first_dirty,
        first_uncleanable=dirt.first_uncleanable,
        clean_bytes=dirt.clean_bytes,
        cleanable_bytes=dirt.cleanable_bytes,
        dirty_ratio=dirt.ratio,
        wanted_ratio=config.min_cleanable_dirty_ratio,
        wanted=dirt.wants_cleaning(config),
        kept_share=clean / dirty if clean and dirty else None,
    )


def _density(segments: Sequence[Segment], end: int) -> float:
    """Return the bytes per offset of segments that end at `end`, or 0 without segments."""
    offsets = end - segments[0].base if segments else 0
    return sum(s.size for s in segments) / offsets if offsets > 0 else 0.0
