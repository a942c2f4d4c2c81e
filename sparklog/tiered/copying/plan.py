"""Chooses segments to copy, and copies to expire. Decides; others act.

Source: RemoteLogManager.RLMCopyTask and RLMExpirationTask (Kafka 4.1), KIP-405. The rules for
local segments are those of all retention: sparklog.log.due_segments, with a `Tier`.
"""

import bisect
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sparklog.config import TopicConfig
from sparklog.format.checkpoint_files import Epochs
from sparklog.log.due_segments import LocalSegment, Tier
from sparklog.storage.leader_epochs import clipped
from sparklog.tiered.remote_log_metadata.metadata_cache import is_within_leader_epochs
from sparklog.tiered.remote_segment import Epochs as SegmentEpochs
from sparklog.tiered.remote_segment import RemoteSegment, SegmentState


@dataclass(frozen=True, slots=True)
class CandidateSegment:
    """A local segment that is to be copied: offsets [base, end), `size` in bytes."""

    base: int
    end: int
    size: int


@dataclass(frozen=True, slots=True)
class ExpiredSegment:
    """A copy that is due, by which rule (log.start.offset, retention.bytes, retention.ms)."""

    segment: RemoteSegment
    rule: str
    why: str


@dataclass(frozen=True, slots=True)
class ExpiredSegments:
    """What retention takes of a partition's copies, oldest first, and the log start that follows.

    `held_back`: bytes that only a registered reader keeps.
    """

    expired: tuple[ExpiredSegment, ...]
    log_start: int
    held_back: int = 0


def valid_copies(
    readable: Iterable[RemoteSegment], lineage: Epochs, *, end: int
) -> list[RemoteSegment]:
    """Return the copies that are of this log's history and lie below its end, ascending.

    Args: readable: `RemoteLogMetadataCache.readable`. lineage: the log's leader epochs.
    """
    return [s for s in readable if s.end <= end and is_within_leader_epochs(s, lineage)]


def copied_ranges(copies: Iterable[RemoteSegment]) -> tuple[tuple[int, int], ...]:
    """Return the offsets [first, end) that copies hold, ascending, joined where they meet."""
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

    Those that are closed, end at or below `stable` (high watermark and last stable offset) and
    above the log start, and have no copy, finished or on its way. Kafka goes on from its highest
    copy; here a copy that failed leaves a hole, which is filled. A segment that grew after its
    copy (a power cut took back that it was closed) is copied again, as that copy's successor; so
    is one that an erasure wrote anew, and one of a compacted topic, which Kafka doesn't tier, once
    it was cleaned.

    Args: copies: the valid ones, and those in COPY_STARTED.
    """
    if config.remote_log_copy_disable or not config.remote_storage_enable:
        return []
    found = []
    ordered = sorted(copies, key=lambda c: c.base)
    bases = [c.base for c in ordered]
    for held, following in itertools.pairwise(segments):
        end = following.base
        if end > stable:
            break
        at = bisect.bisect_left(bases, end)  # from here on they begin behind it
        others = []
        while at and ordered[at - 1].end > held.base:
            at -= 1
            others.append(ordered[at])
        outdated = _is_cleaned if config.compact else _is_outgrown
        if end > log_start and all(outdated(c, held, end) for c in others):
            found.append(CandidateSegment(held.base, end, held.size))
    return found


def _is_outgrown(copy: RemoteSegment, held: LocalSegment, end: int) -> bool:
    """Tell whether a copy holds a beginning of the segment [base, end), or what it was before.

    An erasure only takes records away, so of one size there is one content.
    """
    finished = copy.state is SegmentState.COPY_FINISHED
    rewritten = copy.end == end and copy.size > held.size
    return finished and copy.base == held.base and (copy.end < end or rewritten)


def _is_cleaned(copy: RemoteSegment, held: LocalSegment, end: int) -> bool:
    """Tell whether a segment was cleaned since its copy, or since those of its sources.

    Cleaning only takes records away, so of one size there is one content.
    """
    finished = copy.state is SegmentState.COPY_FINISHED
    return finished and (copy.base, copy.end, copy.size) != (held.base, end, held.size)


def epochs_of(entries: Epochs, base: int, end: int) -> SegmentEpochs:
    """Return the leader epochs of offsets [base, end); epoch 0 where none is known.

    Kafka wants at least one; batches that are older than leader epochs have none.
    """
    known = clipped(entries, start=base, end=end)
    return tuple(known) or ((0, base),)


def expired_segments(
    copies: Sequence[RemoteSegment],
    segments: Sequence[LocalSegment],
    config: TopicConfig,
    *,
    log_start: int,
    now_ms: int,
    floor: int | None = None,
) -> ExpiredSegments:
    """Return which copies have expired by the limits of the whole partition, both tiers together.

    Stops at the first that stays, at what a registered reader (`floor`) still wants, and at
    offsets of which there is no copy. Those that lie below the log start already are not in it.

    Args: copies: the valid ones. segments: the local ones, the active one included.
    """
    copied = Tier(copied_ranges(copies))
    ends = [*(s.base for s in segments[1:]), 2**63]
    only_local = sum(
        s.size
        for s, end in zip(segments, ends, strict=True)
        if end > log_start and not copied.holds(max(s.base, log_start), end)
    )
    live = [c for c in copies if c.end > log_start]
    size, start = only_local + sum(c.size for c in live), log_start
    gone: list[ExpiredSegment] = []
    for copy in live if config.delete else ():
        if copy.base > start:
            break
        found = _breach(copy, config, size=size, now_ms=now_ms)
        if found is None:
            break
        if floor is not None and copy.end > floor:
            return ExpiredSegments(tuple(gone), start, copy.size)
        gone.append(ExpiredSegment(copy, *found))
        size -= copy.size
        start = copy.end
    return ExpiredSegments(tuple(gone), start)


def _breach(
    copy: RemoteSegment, config: TopicConfig, *, size: int, now_ms: int
) -> tuple[str, str] | None:
    """Which rule takes the oldest copy, and why; None if it stays."""
    if config.retention_bytes >= 0 and size - config.retention_bytes - copy.size >= 0:
        why = f"{size} bytes in both tiers, retention.bytes={config.retention_bytes}"
        return "retention.bytes", why
    age = now_ms - copy.max_timestamp
    if 0 <= config.retention_ms <= age:
        return "retention.ms", f"newest record {age} ms old, {config.retention_ms} allowed"
    return None


def unreferenced_segments(
    known: Iterable[RemoteSegment], valid_copies: Sequence[RemoteSegment], *, log_start: int
) -> list[RemoteSegment]:
    """Return the copies that no reader looks for any more, whatever their state.

    Those that lie below the log start; finished ones of whose offsets above it others hold all
    (what a later copy took the place of); and those whose deletion was begun.
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
