"""Decide which segments of a partition are due for deletion, and why. Homes delete them.

Source: UnifiedLog.deleteOldSegments and its three rules (Kafka 4.1). The oldest segments are
    deleted as long as each is below the log start offset. Then, if cleanup.policy contains delete:
    while the log without the oldest segment is not smaller than retention.bytes, and while the
    oldest segment's newest record is older than retention.ms. A rule stops at the first segment
    that it does not delete. sparklog differs in one point: with `floor`, segments that a registered
    reader has not read are not deleted by size or age.

For tiered topics the rules apply to local segments, by local.retention.*, and delete only segments
with a finished remote copy. Remote copies expire by retention.* (KIP-405), by the same rules:
see `RetentionWalk`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
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
    """A local segment: its base offset, and the size of its log file in bytes."""

    base: int
    size: int


@dataclass(frozen=True, slots=True)
class Tier:
    """The remote copies of a partition of a tiered topic.

    Attributes:
        copied: Offset ranges [first, end) of finished copies, ascending and disjoint.
        copying: Whether segments are copied: False with remote.log.copy.disable. Then retention.*
            applies to local segments again, once the last copy has expired (KIP-950).
    """

    copied: tuple[tuple[int, int], ...] = ()
    copying: bool = True

    def holds(self, first: int, end: int) -> bool:
        """Return whether finished copies contain all offsets of [first, end)."""
        return first >= end or any(low <= first and end <= high for low, high in self.copied)


@dataclass(frozen=True, slots=True)
class RetentionConstraints:
    """Limits of a partition's retention that are not part of the topic's config.

    Attributes:
        floor: The offset of the slowest registered reader, if the topic respects readers.
        tier: The remote copies of the partition, if the topic is tiered.
        announcing: Whether the first deletion was not announced yet, so that no segment is deleted
            by size or age.
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

    Attributes:
        expired: The segments.
        log_start: The log start offset after the deletion; if `local`, the local log start offset.
        rolls: Whether the active segment is due, or would be if it had a copy, so that it must be
            rolled first.
        next_ms: No segment expires by age before that time, unless the segments change.
        held_back: Bytes that are retained only for a registered reader.
        local: Whether only local segments are deleted, and their remote copies stay.
    """

    expired: tuple[Expired, ...]
    log_start: int
    rolls: bool
    next_ms: float
    held_back: int
    local: bool = False


def largest_timestamps(segments: PartitionSegments, end: int) -> Callable[[int], int]:
    """Return a function that returns a segment's largest timestamp (ms) by its base offset.

    As in Kafka, the age of a segment without timestamps is the age of its file. Unlike Kafka, a
    time index entry is used only if the log confirms it, because a flipped bit must not delete
    records. `end` is the log end offset.
    """
    times = TimeLookup(Lookup(segments))
    return lambda base: times.largest_timestamp(base, end)


def retention_limits(config: TopicConfig, *, local: bool) -> tuple[int, int]:
    """Return (bytes, ms): the limits of a partition, or with `local` of its local segments.

    -1 means no limit. In local.retention.*, -2 means the value of retention.*. Source:
    RemoteLogConfig of LogConfig.
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
    """Return the segments of a partition that are due for deletion.

    Args:
        segments: The partition's local segments, ascending.
        config: The topic's config.
        log_start: The log start offset.
        end: The committed end offset.
        now_ms: The current time.
        largest: Returns the largest timestamp (ms) of a segment by its base offset.
        local_start: The local log start offset, if it is above the log start offset.
        terms: Constraints that are not part of the config: readers, remote copies, announcements.
    """
    tier, ends = terms.tier, [*(s.base for s in segments[1:]), end]
    walk = RetentionWalk(
        segments, ends, start=max(log_start, local_start), size=sum(s.size for s in segments),
        floor=terms.floor, prefix="local." if terms.local else "",
    )  # fmt: skip

    def lacks_copy(at: int) -> bool:
        """Return True if the segment with index `at` must stay, because the copy is not complete.

        Only offsets above the log start count.
        """
        if tier is None or not tier.copying:
            return False
        return not tier.holds(max(segments[at].base, log_start), ends[at])

    low = walk.start
    # Not the active segment, and not a segment that a crash left below the local start if the
    # segment has no remote copy any more.
    while walk.at + 1 < len(segments) and ends[walk.at] <= low and not lacks_copy(walk.at):
        walk.take(LOG_START, f"all below the log start {low}")
    # Without copying, remote-only segments are older and must expire first.
    is_behind = tier is not None and not tier.copying and bool(segments)
    is_behind = is_behind and segments[walk.at].base > log_start
    if config.delete and not terms.announcing:
        walk.expire(
            retention_limits(config, local=terms.local),
            lambda at: lacks_copy(at) if terms.local else is_behind or walk.is_needed(at),
            now_ms=now_ms,
            newest=lambda at: largest(segments[at].base),
            # As Kafka: an empty active segment stays, because rolling gives another empty one.
            stop=len(segments) - (not segments[-1].size) if segments else 0,
        )
    closes = walk.at == len(segments) or (terms.local and walk.retained == len(segments) - 1)
    return walk.due(rolls=bool(segments) and closes, local=terms.local)


@dataclass(slots=True)
class RetentionWalk:
    """Applies the rules of retention to a partition's segments or remote copies, oldest first.

    Segments that are due are taken, one by one, until a rule stops.

    Attributes:
        segments: The segments; a copy counts as a segment.
        ends: The end offset of each segment.
        start: The log start offset after the deletion of the segments that were taken.
        size: The bytes of the segments that were not taken.
        floor: The offset of the slowest registered reader, if the topic respects readers.
        prefix: The prefix of the rules' names, such as "local.".
        are_copies: Whether the segments are copies; `size` then includes local segments.
        at: The index of the oldest segment that was not taken.
        retained: The index of the segment that exceeds a limit, but stays.
        held_back: The bytes of that segment if it stays only for a registered reader.
        next_ms: No further segment expires by age before that time.
    """

    segments: Sequence[LocalSegment]
    ends: Sequence[int]
    start: int
    size: int
    floor: int | None = None
    prefix: str = ""
    are_copies: bool = False
    at: int = 0
    retained: int | None = None
    held_back: int = 0
    next_ms: float = NEVER_MS
    expired: list[Expired] = field(default_factory=list)

    def take(self, rule: str, why: str) -> None:
        """Mark the oldest segment that is left as due, by `rule`; `why` is the reason for users."""
        segment, end = self.segments[self.at], self.ends[self.at]
        name = f"{self.prefix}{rule}"
        self.expired.append(Expired(segment.base, end, segment.size, name, why))
        self.size -= segment.size
        self.start = max(self.start, end)
        self.at += 1

    def is_needed(self, at: int) -> bool:
        """Return True if a registered reader has not read all of the segment with index `at`.

        In this case `held_back` is set.
        """
        is_needed = self.floor is not None and self.ends[at] > self.floor
        self.held_back = self.segments[at].size if is_needed else self.held_back
        return is_needed

    def expire(
        self,
        limits: tuple[int, int],
        stays: Callable[[int], bool],
        *,
        now_ms: int,
        newest: Callable[[int], int],
        stop: int,
    ) -> None:
        """Take the segments that exceed a limit, by size and then by age.

        Args:
            limits: The maximum bytes and age (ms); see `retention_limits`.
            stays: Returns whether the segment with an index is retained despite the limits.
            now_ms: The current time.
            newest: Returns the largest timestamp (ms) of the segment with an index.
            stop: The index of the first segment that is always retained.
        """
        max_bytes, max_age_ms = limits
        both = " in both tiers" if self.are_copies else ""
        while max_bytes >= 0 and self.at < stop:
            if self.size - max_bytes - self.segments[self.at].size < 0 or self._keeps(stays):
                break
            rule = "retention.bytes"
            self.take(rule, f"{self.size} bytes{both}, {self.prefix}{rule}={max_bytes}")
        # Kafka deletes a local segment that is older than the limit, and a copy that is as old.
        expires_ms = max_age_ms if self.are_copies else max_age_ms + 1
        while max_age_ms >= 0 and self.at < stop:
            newest_ms = newest(self.at)
            if now_ms - newest_ms < expires_ms:
                self.next_ms = newest_ms + max_age_ms
                break
            if self._keeps(stays):
                break
            why = f"newest record {now_ms - newest_ms} ms old, {max_age_ms} allowed"
            self.take("retention.ms", why)

    def _keeps(self, stays: Callable[[int], bool]) -> bool:
        is_kept = stays(self.at)
        self.retained = self.at if is_kept else self.retained
        return is_kept

    def due(self, *, rolls: bool = False, local: bool = False) -> DueSegments:
        """Return the segments that were taken. `rolls`, `local`: see `DueSegments`."""
        expired = tuple(self.expired)
        return DueSegments(expired, self.start, rolls, self.next_ms, self.held_back, local)
