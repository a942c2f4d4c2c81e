"""Which segments of a partition are due for deletion, and why. Decides; each home acts.

Source: UnifiedLog.deleteOldSegments and its three rules (Kafka 4.1): the oldest segments go as
long as each is below the log start; then, if cleanup.policy has delete, while the log is larger
than retention.bytes without it; then while its newest record is older than retention.ms. A rule
stops at the first segment that it keeps. One departure: with `floor`, nothing that a registered
reader still wants goes by size or age.

Where closed segments are copied to remote storage, these rules are about the local ones: by
local.retention.*, and only what has a finished copy; it goes on there by retention.* (KIP-405).
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
"""The rule that takes what readers have no more: by delete-records, say."""


@dataclass(frozen=True, slots=True)
class LocalSegment:
    """A segment that the rules go over: its base offset and the size of its log in bytes."""

    base: int
    size: int


@dataclass(frozen=True, slots=True)
class Tier:
    """How a partition of a tiered topic stands.

    `copied`: what finished copies hold, as offsets [first, end), ascending and apart. `copying`:
    not with remote.log.copy.disable; then retention.* is for the local segments again, once the
    last copy has expired (KIP-950).
    """

    copied: tuple[tuple[int, int], ...] = ()
    copying: bool = True

    def holds(self, first: int, end: int) -> bool:
        """Tell whether copies hold all offsets of [first, end)."""
        return first >= end or any(low <= first and end <= high for low, high in self.copied)


@dataclass(frozen=True, slots=True)
class RetentionConstraints:
    """What retention of a partition must heed beside the topic's config.

    `floor`: the slowest registered reader's offset, if the topic respects readers. `announcing`:
    nothing goes by size or age yet, for nobody was told before.
    """

    floor: int | None = None
    tier: Tier | None = None
    announcing: bool = False

    @property
    def local(self) -> bool:
        """Whether what goes is a local segment only, with a copy elsewhere."""
        return self.tier is not None and self.tier.copying


NO_CONSTRAINTS: Final = RetentionConstraints()


@dataclass(frozen=True, slots=True)
class DueSegments:
    """What may go of a partition, oldest first.

    `log_start`: where the log begins then; if `local`, only its local segments do. `rolls`: the
    active segment is among it, or would be if it had a copy, so a new one is begun first.
    `next_ms`: before that time nothing more expires by age unless the segments change.
    `held_back`: bytes that only a registered reader keeps.
    """

    expired: tuple[Expired, ...]
    log_start: int
    rolls: bool
    next_ms: float
    held_back: int
    local: bool = False


def largest_timestamps(segments: PartitionSegments, end: int) -> Callable[[int], int]:
    """Return the function base -> largest timestamp (ms) of its segment; an age for `due`.

    As Kafka: a segment without timestamps is as old as its file. Unlike Kafka a time index is
    believed only where the log agrees: a flipped bit must not delete records.
    """
    times = TimeLookup(Lookup(segments))
    return lambda base: times.largest_timestamp(base, end)


def retention_limits(config: TopicConfig, *, local: bool) -> tuple[int, int]:
    """(bytes, ms) that a partition, or its local segments, may be large and old; -1: no limit.

    Source: RemoteLogConfig of LogConfig, where -2 stands for what holds for both tiers.
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
    """Return what is due in a partition whose log ends (and is committed) at offset `end`.

    Args: local_start: where local segments begin, if that is above the log start.
    """
    walk = _Walk(segments, config, max(log_start, local_start), end, terms)
    at = 0
    # Never the active segment; nor what a crash left below the local start, if its copy is gone.
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
    """What the rules share as they go from the oldest segment on."""

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
        held = self._segments[at]
        self.gone.append(Expired(held.base, self.ends[at], held.size, rule, why))
        self.size -= held.size
        self.start = max(self.start, self.ends[at])

    def is_last_and_empty(self, at: int) -> bool:
        return at + 1 == len(self._segments) and not self._segments[at].size

    def lacks(self, at: int, log_start: int) -> bool:
        """Tell whether no copy holds what a segment of a tiered topic has above the log start."""
        tier = self._terms.tier
        if tier is None or not tier.copying:
            return False
        return not tier.holds(max(self._segments[at].base, log_start), self.ends[at])

    def stays_from(self, first: int, log_start: int) -> Callable[[int], bool]:
        """Return what tells whether a segment that a rule would take must stay all the same."""
        segments, tier, floor = self._segments, self._terms.tier, self._terms.floor

        def is_wanted(at: int) -> bool:
            wanted = floor is not None and self.ends[at] > floor
            self.held_back = segments[at].size if wanted else self.held_back
            return wanted

        if tier is None:
            return is_wanted
        if not tier.copying:  # what only copies hold is older, and must have gone before
            gap = first < len(segments) and segments[first].base > log_start
            return lambda at: gap or is_wanted(at)

        def has_no_copy(at: int) -> bool:
            if not self.lacks(at, log_start):
                return False
            self.rolls = self.rolls or at + 1 == len(segments)
            return True

        return has_no_copy
