"""Decide which segments of a partition are due for deletion, and why. Homes delete them.

Source: UnifiedLog.deleteOldSegments and its three rules (Kafka 4.1). The oldest segments are
    deleted as long as each is below the log start offset. Then, if cleanup.policy contains delete:
    while the log without the oldest segment is not smaller than retention.bytes, and while the
    oldest segment's newest record is older than retention.ms. A rule stops at the first segment
    that it does not delete. sparklog differs in one point: with `floor`, segments that a registered
    reader has not read are not deleted by size or age.

For tiered topics the rules apply to local segments, by local.retention.*, and delete only segments
with a finished remote copy. Remote copies expire by retention.* (KIP-405).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from sparklog.config import TopicConfig
from sparklog.log.offset_lookup import Lookup
from sparklog.log.time_lookup import TimeLookup
from sparklog.storage.round_report import Expired
from sparklog.storage.segments import PartitionSegments

NEVER_MS: Final = float("inf")
LOG_START: Final = "log.start.offset"
"""The rule for segments below the log start offset, which delete-records raises, for example."""


@dataclass(frozen=True, slots=True)
class LocalSegment:
    """The properties of a segment that the rules need: base offset, and log file size in bytes."""

    base: int
    size: int


@dataclass(frozen=True, slots=True)
class Tier:
    """The remote copies of a partition of a tiered topic.

    `copied`: offset ranges [first, end) of finished copies, ascending and disjoint. `copying`:
    False with remote.log.copy.disable; retention.* then applies to local segments again, once the
    last copy has expired (KIP-950).
    """

    copied: tuple[tuple[int, int], ...] = ()
    copying: bool = True

    def holds(self, first: int, end: int) -> bool:
        """Return whether copies contain all offsets of [first, end)."""
        return first >= end or any(low <= first and end <= high for low, high in self.copied)


@dataclass(frozen=True, slots=True)
class RetentionConstraints:
    """Limits of a partition's retention that are not part of the topic's config.

    `floor`: offset of the slowest registered reader, if the topic respects readers. `announcing`:
    the first deletion was not announced yet, so no segment is deleted by size or age.
    """

    floor: int | None = None
    tier: Tier | None = None
    announcing: bool = False

    @property
    def local(self) -> bool:
        """Whether only local segments are deleted, and their remote copies stay."""
        return self.tier is not None and self.tier.copying


NO_CONSTRAINTS: Final = RetentionConstraints()


@dataclass(frozen=True, slots=True)
class DueSegments:
    """The segments of a partition that may be deleted, oldest first.

    `log_start`: the log start offset after the deletion; if `local`, the local log start offset.
    `rolls`: the active segment is due, or would be if it had a copy, so it must be rolled first.
    `next_ms`: no segment expires by age before that time, unless the segments change. `held_back`:
    bytes that are retained only for a registered reader.
    """

    expired: tuple[Expired, ...]
    log_start: int
    rolls: bool
    next_ms: float
    held_back: int
    local: bool = False


def largest_timestamps(segments: PartitionSegments, end: int) -> Callable[[int], int]:
    """Return a function base offset -> largest timestamp (ms) of the segment.

    As in Kafka, the age of a segment without timestamps is the age of its file. Unlike Kafka, a
    time index entry is used only if the log confirms it, because a flipped bit must not delete
    records.
    """
    times = TimeLookup(Lookup(segments))
    return lambda base: times.largest_timestamp(base, end)


def retention_limits(config: TopicConfig, *, local: bool) -> tuple[int, int]:
    """Return the limits (bytes, ms) of a partition or of the local segments; -1: no limit.

    Source: RemoteLogConfig of LogConfig; -2 means the value of retention.*.
    """
    size, age = config.retention_bytes, config.retention_ms
    if local:
        size = size if config.local_retention_bytes == -2 else config.local_retention_bytes
        age = age if config.local_retention_ms == -2 else config.local_retention_ms
    return size, age


def due(
    segments: Sequence[LocalSegment],
    config: TopicConfig,
    *,
    log_start: int,
    end: int,
    now_ms: int,
    largest: Callable[[int], int],
    local_start: int = 0,
    terms: RetentionConstraints = NO_CONSTRAINTS,
) -> DueSegments:
    """Return the segments that are due in a partition with the committed end offset `end`.

    Args:
        local_start: The local log start offset, if it is above the log start offset.
    """
    walk = _Walk(segments, config, max(log_start, local_start), end, terms)
    at = 0
    # Not the active segment, and not a segment that a crash left below the local start if the
    # segment has no remote copy any more.
    while at + 1 < len(segments) and walk.ends[at] <= walk.low and not walk.lacks(at, log_start):
        walk.take(at, walk.named(LOG_START), f"all below the log start {walk.low}")
        at += 1
    stays = walk.stays_from(at, log_start)
    size_bytes, age_ms = retention_limits(config, local=terms.local)
    name = walk.named("retention.bytes")
    deletes = config.delete and not terms.announcing
    if deletes and size_bytes >= 0:
        while at < len(segments) and not walk.is_last_and_empty(at):
            if walk.size - size_bytes - segments[at].size < 0 or stays(at):
                break
            walk.take(at, name, f"{walk.size} bytes, {name}={size_bytes}")
            at += 1
    next_ms = NEVER_MS
    name = walk.named("retention.ms")
    if deletes and age_ms >= 0:
        while at < len(segments) and not walk.is_last_and_empty(at):
            newest = largest(segments[at].base)
            if now_ms - newest <= age_ms:
                next_ms = newest + age_ms
                break
            if stays(at):
                break
            walk.take(at, name, f"newest record {now_ms - newest} ms old, {age_ms} allowed")
            at += 1
    rolls = walk.rolls or (bool(segments) and at == len(segments))
    return DueSegments(tuple(walk.gone), walk.start, rolls, next_ms, walk.held_back, terms.local)


class _Walk:
    """State that the rules share while they go from the oldest segment to the newest."""

    def __init__(
        self,
        segments: Sequence[LocalSegment],
        config: TopicConfig,
        low: int,
        end: int,
        terms: RetentionConstraints,
    ) -> None:
        self.ends = [*(s.base for s in segments[1:]), end]
        self.size = sum(s.size for s in segments)
        self.low = self.start = low
        self.gone: list[Expired] = []
        self.held_back = 0
        self.rolls = False
        self._segments, self._config, self._terms = segments, config, terms

    def named(self, rule: str) -> str:
        return f"local.{rule}" if self._terms.local else rule

    def take(self, at: int, rule: str, why: str) -> None:
        segment = self._segments[at]
        self.gone.append(Expired(segment.base, self.ends[at], segment.size, rule, why))
        self.size -= segment.size
        self.start = max(self.start, self.ends[at])

    def is_last_and_empty(self, at: int) -> bool:
        return at + 1 == len(self._segments) and not self._segments[at].size

    def lacks(self, at: int, log_start: int) -> bool:
        """Return whether a segment has offsets above the log start that no remote copy contains."""
        tier = self._terms.tier
        if tier is None or not tier.copying:
            return False
        return not tier.holds(max(self._segments[at].base, log_start), self.ends[at])

    def stays_from(self, first: int, log_start: int) -> Callable[[int], bool]:
        """Return a function that checks whether a segment must be retained despite the rules."""
        segments, tier, floor = self._segments, self._terms.tier, self._terms.floor

        def is_wanted(at: int) -> bool:
            is_needed = floor is not None and self.ends[at] > floor
            self.held_back = segments[at].size if is_needed else self.held_back
            return is_needed

        if tier is None:
            return is_wanted
        if not tier.copying:  # remote-only segments are older and must expire first
            gap = first < len(segments) and segments[first].base > log_start
            return lambda at: gap or is_wanted(at)

        def has_no_copy(at: int) -> bool:
            if not self.lacks(at, log_start):
                return False
            self.rolls = self.rolls or at + 1 == len(segments)
            return True

        return has_no_copy
