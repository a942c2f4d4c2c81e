"""Which segments of a partition are due for deletion, and why. Decides; `retiring` acts.

Source: UnifiedLog.deleteOldSegments and its three rules (Kafka 4.1): the oldest segments go as
long as each is below the log start; then, if cleanup.policy has delete, while the log is larger
than retention.bytes without it; then while its newest record is older than retention.ms. A rule
stops at the first segment that it keeps. One departure: with `floor`, nothing that a registered
reader still wants goes by size or age.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from sparklog.config import TopicConfig
from sparklog.format.names import log_name
from sparklog.fs import FileSystem
from sparklog.log.lookup import Lookup
from sparklog.log.times import TimeLookup
from sparklog.log.walk import joined, segment_bases

NEVER_MS: Final = float("inf")


@dataclass(frozen=True, slots=True)
class Held:
    """A segment on disk: its base offset and the size of its log in bytes."""

    base: int
    size: int


@dataclass(frozen=True, slots=True)
class Expired:
    """A segment that is due: offsets [base, end), `bytes` of log; `rule` and its words."""

    base: int
    end: int
    bytes: int
    rule: str  # log.start.offset, retention.bytes or retention.ms
    why: str


@dataclass(frozen=True, slots=True)
class Due:
    """What may go of a partition, oldest first.

    `rolls`: the active segment is among it, so a new one is begun first. `next_ms`: before that
    time nothing more expires by age unless the segments change. `held_back`: bytes that only a
    registered reader keeps.
    """

    expired: tuple[Expired, ...]
    log_start: int
    rolls: bool
    next_ms: float
    held_back: int


def segments_of(fs: FileSystem, directory: str) -> list[Held]:
    """List a partition's segments. Cost: a listing, and a stat each."""
    return [
        Held(base, fs.size(joined(directory, log_name(base))))
        for base in segment_bases(fs, directory)
    ]


def largest_of(fs: FileSystem, directory: str, end: int) -> Callable[[int], int]:
    """Return the function base -> largest timestamp (ms) of its segment; an age for `due`.

    As Kafka: a segment without timestamps is as old as its file. Unlike Kafka a time index is
    believed only where the log agrees: a flipped bit must not delete records.
    """
    times = TimeLookup(Lookup(fs, directory, gaps=True))
    return lambda base: times.reaches(base, end)


def due(
    segments: Sequence[Held],
    config: TopicConfig,
    *,
    log_start: int,
    end: int,
    now_ms: int,
    largest: Callable[[int], int],
    floor: int | None = None,
) -> Due:
    """Return what is due in a partition whose log ends (and is committed) at offset `end`.

    Args: floor: the slowest registered reader's offset, if the topic respects readers.
    """
    ends = [*(s.base for s in segments[1:]), end]
    size = sum(s.size for s in segments)
    gone: list[Expired] = []
    start, kept_for_readers, next_ms = log_start, 0, NEVER_MS

    def take(at: int, rule: str, why: str) -> None:
        nonlocal size, start
        held = segments[at]
        gone.append(Expired(held.base, ends[at], held.size, rule, why))
        size -= held.size
        start = max(start, ends[at])

    def is_last_and_empty(at: int) -> bool:
        return at + 1 == len(segments) and not segments[at].size

    def is_wanted(at: int) -> bool:
        nonlocal kept_for_readers
        wanted = floor is not None and ends[at] > floor
        kept_for_readers += segments[at].size if wanted else 0
        return wanted

    at = 0
    while at + 1 < len(segments) and ends[at] <= log_start:  # never the active segment
        take(at, "log.start.offset", f"all below the log start {log_start}")
        at += 1
    if config.delete and config.retention_bytes >= 0:
        while at < len(segments) and not is_last_and_empty(at):
            if size - config.retention_bytes - segments[at].size < 0 or is_wanted(at):
                break
            take(at, "retention.bytes", f"{size} bytes, retention.bytes={config.retention_bytes}")
            at += 1
    if config.delete and config.retention_ms >= 0:
        while at < len(segments) and not is_last_and_empty(at):
            newest = largest(segments[at].base)
            if now_ms - newest <= config.retention_ms:
                next_ms = newest + config.retention_ms
                break
            if is_wanted(at):
                break
            age = now_ms - newest
            take(at, "retention.ms", f"newest record {age} ms old, {config.retention_ms} allowed")
            at += 1
    rolls = bool(segments) and at == len(segments)
    return Due(tuple(gone), start if gone else log_start, rolls, next_ms, kept_for_readers)
