"""Chooses segments to copy, and copies to expire. Other modules carry this out.

Source: RemoteLogManager.RLMCopyTask and RLMExpirationTask (Kafka 4.1), KIP-405. The rules for local
segments are in sparklog.log.due_segments, with a `Tier`.
"""

import bisect
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sparklog.common import TopicPartition
from sparklog.config import TopicConfig
from sparklog.format.checkpoint_files import Epochs
from sparklog.log.due_segments import (
    DueSegments,
    LocalSegment,
    RetentionConstraints,
    RetentionWalk,
    Tier,
    retention_limits,
)
from sparklog.logdir.retention.partition_retention import PartitionRetention
from sparklog.storage.leader_epochs import clipped
from sparklog.tiered.remote_log_metadata.metadata_cache import is_within_leader_epochs
from sparklog.tiered.remote_segment import Epochs as SegmentEpochs
from sparklog.tiered.remote_segment import RemoteSegment, SegmentState


@dataclass(frozen=True, slots=True)
class CandidateSegment:
    """A local segment to copy: offsets [base, end), `size` in bytes."""

    base: int
    end: int
    size: int


def valid_copies(
    readable: Iterable[RemoteSegment], lineage: Epochs, *, end: int
) -> list[RemoteSegment]:
    """Return the copies of this log's history that end at or below the log's end, ascending.

    Args:
        readable: The result of `RemoteLogMetadataCache.readable`.
        lineage: The log's leader epochs.
        end: The log's end.
    """
    return [s for s in readable if s.end <= end and is_within_leader_epochs(s, lineage)]


def copied_ranges(copies: Iterable[RemoteSegment]) -> tuple[tuple[int, int], ...]:
    """Return the offset ranges [first, end) of the copies, ascending.

    Adjacent ranges are merged.
    """
    joined: list[tuple[int, int]] = []
    for copy in sorted(copies, key=lambda c: c.base):
        if joined and joined[-1][1] >= copy.base:
            joined[-1] = joined[-1][0], max(joined[-1][1], copy.end)
        else:
            joined.append((copy.base, copy.end))
    return tuple(joined)


def segments_to_copy(
    segments: Sequence[LocalSegment],
    copies: Sequence[RemoteSegment],
    config: TopicConfig,
    *,
    log_start: int,
    stable: int,
) -> list[CandidateSegment]:
    """Return the local segments to copy, oldest first.

    These segments are closed, end at or below `stable` (high watermark and last stable offset) and
    above the log start, and have no copy, finished or in progress. Kafka continues after its
    highest copy; here a failed copy leaves a gap that is filled later. A segment that grew after
    its copy (a power cut undid its closing) is copied again, and the new copy replaces the old
    copy. The same applies to a segment that an erasure rewrote, and to a segment of a compacted
    topic (which Kafka doesn't tier) that was cleaned since.

    Args:
        segments: The local segments.
        copies: The valid copies, and copies in COPY_STARTED.
        config: The topic's config.
        log_start: The log start offset.
        stable: The lower of high watermark and last stable offset.
    """
    if config.remote_log_copy_disable or not config.remote_storage_enable:
        return []
    candidates = []
    ordered = sorted(copies, key=lambda c: c.base)
    bases = [c.base for c in ordered]
    # Pairs, so the active segment, which has no next segment, is never copied.
    for held, following in itertools.pairwise(segments):
        end = following.base
        if end > stable:
            break
        at = bisect.bisect_left(bases, end)  # the first segment after this range
        others = []
        while at and ordered[at - 1].end > held.base:
            at -= 1
            others.append(ordered[at])
        outdated = _is_cleaned if config.compact else _is_outgrown
        if end > log_start and all(outdated(c, held, end) for c in others):
            candidates.append(CandidateSegment(held.base, end, held.size))
    return candidates


def _is_outgrown(copy: RemoteSegment, held: LocalSegment, end: int) -> bool:
    """Return True if the segment grew after it was copied, or was rewritten by an erasure.

    An erasure only removes records, so equal sizes mean equal content.

    Args:
        copy: The copy.
        held: The local segment.
        end: The end offset of the local segment.
    """
    finished = copy.state is SegmentState.COPY_FINISHED
    rewritten = copy.end == end and copy.size > held.size
    return finished and copy.base == held.base and (copy.end < end or rewritten)


def _is_cleaned(copy: RemoteSegment, held: LocalSegment, end: int) -> bool:
    """Return True if a local segment was cleaned since it or its sources were copied.

    Cleaning only removes records, so equal offsets and sizes mean equal content.

    Args:
        copy: The copy.
        held: The local segment.
        end: The end offset of the local segment.
    """
    finished = copy.state is SegmentState.COPY_FINISHED
    return finished and (copy.base, copy.end, copy.size) != (held.base, end, held.size)


def epochs_of(entries: Epochs, base: int, end: int) -> SegmentEpochs:
    """Return the leader epochs of offsets [base, end), or epoch 0 without a known epoch.

    Kafka requires at least one epoch, but batches older than leader epochs have none.
    """
    known = clipped(entries, start=base, end=end)
    return tuple(known) or ((0, base),)


def tier_of(config: TopicConfig, copies: Iterable[RemoteSegment]) -> Tier | None:
    """Return the copied offsets, which retention of local segments must know.

    Returns None if the topic is not tiered or is compacted. Segments of a compacted topic stay
    local: the cleaner would not see older values of a key in copies, and would remove the tombstone
    that hides them.
    """
    if not config.remote_storage_enable or config.compact:
        return None
    return Tier(copied_ranges(copies), copying=not config.remote_log_copy_disable)


def retention_terms(
    places: Mapping[TopicPartition, PartitionRetention],
    floors: Mapping[TopicPartition, int],
    copies: Callable[[TopicPartition, PartitionRetention], Iterable[RemoteSegment]],
) -> dict[TopicPartition, RetentionConstraints]:
    """Return the constraints on the deletion of local segments: registered readers and copies.

    Args:
        places: The partitions.
        floors: The positions of the slowest readers.
        copies: Returns a partition's valid copies; called for tiered topics only.
    """
    terms = {key: RetentionConstraints(floor) for key, floor in floors.items()}
    for key, place in places.items():
        if place.config.remote_storage_enable:
            tier = tier_of(place.config, copies(key, place))
            if tier is not None:
                terms[key] = RetentionConstraints(floors.get(key), tier)
    return terms


def expired_segments(
    copies: Sequence[RemoteSegment],
    segments: Sequence[LocalSegment],
    config: TopicConfig,
    *,
    log_start: int,
    now_ms: int,
    floor: int | None = None,
) -> DueSegments:
    """Return the copies that exceed the limits of the partition, local and remote together.

    Stops at the first copy that does not exceed them, at the position of a registered reader, and
    at offsets without a copy. Copies below the log start are not included.

    Args:
        copies: The valid copies.
        segments: The local segments, including the active segment.
        config: The topic's config.
        log_start: The log start offset.
        now_ms: The current time.
        floor: The position of the slowest registered reader, if there is one.
    """
    copied = Tier(copied_ranges(copies))
    ends = [*(s.base for s in segments[1:]), 2**63]
    only_local = sum(
        s.size
        for s, end in zip(segments, ends, strict=True)
        if end > log_start and not copied.holds(max(s.base, log_start), end)
    )
    live = [c for c in copies if c.end > log_start]
    starts = [log_start, *(c.end for c in live)]
    # To expire a copy behind a hole would raise the log start over offsets that are only local, and
    # whose limits are checked elsewhere.
    hole = next((at for at, c in enumerate(live) if c.base > starts[at]), len(live))
    walk = RetentionWalk(
        [LocalSegment(c.base, c.size) for c in live],
        starts[1:],
        start=log_start,
        size=only_local + sum(c.size for c in live),
        floor=floor,
        are_copies=True,
    )
    if config.delete:
        walk.expire(
            retention_limits(config, local=False), walk.is_needed, now_ms=now_ms,
            newest=lambda at: live[at].max_timestamp, stop=hole,
        )  # fmt: skip
    return walk.due()


def unreferenced_segments(
    known: Iterable[RemoteSegment], valid_copies: Sequence[RemoteSegment], *, log_start: int
) -> list[RemoteSegment]:
    """Return the copies that readers no longer use, in any state.

    These are copies below the log start, finished copies with all their offsets above it in other
    copies (which replaced them), and copies with a started deletion.
    """
    ids, held = {s.id for s in valid_copies}, Tier(copied_ranges(valid_copies))
    return [
        s
        for s in known
        if s.state is SegmentState.DELETE_STARTED
        or s.end <= log_start
        or (
            s.state is SegmentState.COPY_FINISHED
            and s.id not in ids
            and held.holds(max(s.base, log_start), s.end)
        )
    ]
