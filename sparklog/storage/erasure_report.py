"""What an erasure did, or would do: as objects, as JSON that can be kept as proof, in words.

Keys are told by their SHA-256 alone. Offsets are those of the records that went; a second run
finds none.
"""

import hashlib
from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from numpy.typing import NDArray

RANGES_MAX: Final = 10_000
"""Ranges of offsets that a report lists for a partition; of the rest it says how many records."""


@dataclass(slots=True)
class ErasedOffsets:
    """Offsets as ranges [first, end), ascending; `more`: those that RANGES_MAX left no room for."""

    ranges: list[tuple[int, int]] = field(default_factory=list)
    more: int = 0

    def add(self, offsets: NDArray[Any]) -> None:
        """Take offsets, ascending."""
        for offset in offsets.tolist():
            if self.ranges and self.ranges[-1][1] == offset:
                self.ranges[-1] = self.ranges[-1][0], offset + 1
            elif len(self.ranges) < RANGES_MAX:
                self.ranges.append((offset, offset + 1))
            else:
                self.more += 1

    def __len__(self) -> int:
        return sum(end - first for first, end in self.ranges) + self.more

    def merge(self, other: "ErasedOffsets") -> None:
        """Take another's, of any order; what both have counts once, but for `more`."""
        self.more += other.more
        joined: list[tuple[int, int]] = []
        for first, end in sorted([*self.ranges, *other.ranges]):
            if joined and first <= joined[-1][1]:
                joined[-1] = joined[-1][0], max(end, joined[-1][1])
            elif len(joined) < RANGES_MAX:
                joined.append((first, end))
            else:
                self.more += end - first
        self.ranges = joined


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasedFrom:
    """A segment, a copy or an extent that was written anew: offsets [base, end) at `name`.

    `place`: "local", "remote" (a tier's copy) or "bucket" (a log whose home is the store).
    `records` of so many `batches` went; with 0 it was copied as it is, out of an object that had
    to go. `links`: other names of the old file (a fork shares it), which still hold them.
    """

    place: str
    name: str
    base: int
    end: int
    batches: int
    records: int
    bytes_before: int
    bytes_after: int
    links: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedFile:
    """What was deleted whole: a file or an object that held, or may have held, such records."""

    place: str
    name: str
    bytes: int
    why: str


@dataclass(slots=True, kw_only=True)
class PartitionErasure:
    """One partition. `end`: records below it were looked at, which is all there was at the start.

    `offsets`: of what went; in both tiers they count once. `error`: why it was left as it is, or
    half done.
    """

    topic: str
    partition: int
    end: int
    offsets: ErasedOffsets = field(default_factory=ErasedOffsets)
    bytes_read: int = 0
    erased_from: list[ErasedFrom] = field(default_factory=list)
    removed: list[RemovedFile] = field(default_factory=list)
    error: str | None = None

    @property
    def records(self) -> int:
        """Records that went, or would go."""
        return len(self.offsets)


@dataclass(slots=True, kw_only=True)
class ErasureReport:
    """An erasure of a log's records.

    `pending`: what still holds such records, or may, until something that it names is done.
    `not_covered`: what this log doesn't know or doesn't change, in words. `complete`: nothing is
    pending and nothing failed: everything committed before `time_ms` is gone.
    """

    path: str
    log_id: str
    topic: str
    topic_id: str
    time_ms: int
    dry_run: bool = False
    keys_sha256: tuple[str, ...] = ()
    null_key: bool = False
    before: str = ""
    partitions: list[PartitionErasure] = field(default_factory=list)
    pending: list[str] = field(default_factory=list)
    not_covered: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    took_ms: float = 0.0

    @property
    def records(self) -> int:
        """Records that went (or would go), of all partitions."""
        return sum(part.records for part in self.partitions)

    @property
    def bytes_read(self) -> int:
        """Bytes of log that were looked at."""
        return sum(part.bytes_read for part in self.partitions)

    @property
    def took_from_store(self) -> bool:
        """Whether an object was written anew, or deleted."""
        places = [
            each.place
            for part in self.partitions
            for some in (part.erased_from, part.removed)
            for each in some
        ]
        return any(place != "local" for place in places)

    @property
    def complete(self) -> bool:
        """Whether nothing is left to do, but what `not_covered` says."""
        failed = self.errors or any(part.error is not None for part in self.partitions)
        return not (failed or self.pending)

    def to_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            **asdict(self),
            "records": self.records,
            "bytes_read": self.bytes_read,
            "complete": self.complete and not self.dry_run,
        }


def sha256_of(keys: Collection[bytes]) -> tuple[str, ...]:
    """Return the SHA-256 of each key, in hex, sorted."""
    return tuple(sorted(hashlib.sha256(key).hexdigest() for key in set(keys)))
