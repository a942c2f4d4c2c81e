"""The report of an erasure or a dry run: objects, JSON that can serve as proof, and text.

Keys are given only as SHA-256. The offsets belong to erased records, so a second run does not
report them.
"""

import hashlib
from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from numpy.typing import NDArray

RANGES_MAX: Final = 10_000
"""The maximum number of offset ranges per partition; further records are only counted."""


@dataclass(slots=True)
class ErasedOffsets:
    """Offsets as ascending ranges [first, end). `more`: the number of offsets beyond RANGES_MAX."""

    ranges: list[tuple[int, int]] = field(default_factory=list)
    more: int = 0

    def add(self, offsets: NDArray[Any]) -> None:
        """Add offsets, ascending."""
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
        """Add another set, in any order. Common offsets count once, except for `more`."""
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
    """A segment, a remote copy or an extent that was rewritten: offsets [base, end) at `name`.

    `place`: "local", "remote" (a tier's copy) or "bucket". `records` were erased from `batches`; 0
    means that the data were copied unchanged out of an object that had to be deleted. `links`: hard
    links to the old file (from forks), which still contain the records.
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
    """A deleted file or object that contained, or may have contained, such records."""

    place: str
    name: str
    bytes: int
    why: str


@dataclass(slots=True, kw_only=True)
class PartitionErasure:
    """The result for a partition. `end`: the end at the start; records below it were checked.

    `offsets`: the erased records; records in both tiers count once. `error`: why the partition was
    not erased, or only in part.
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
        """The number of records that were or would be erased."""
        return len(self.offsets)


@dataclass(slots=True, kw_only=True)
class ErasureReport:
    """The erasure of records of a topic.

    `pending`: places that still contain, or may contain, such records, and what has to be done.
    `not_covered`: places that this log does not know or change. `complete`: no place is pending and
    no partition failed, so all matching records committed before `time_ms` are erased.
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
        """The number of records that were or would be erased, in all partitions."""
        return sum(part.records for part in self.partitions)

    @property
    def bytes_read(self) -> int:
        """Bytes of log that were checked."""
        return sum(part.bytes_read for part in self.partitions)

    @property
    def took_from_store(self) -> bool:
        """Whether an object was rewritten or deleted."""
        places = [
            change.place
            for part in self.partitions
            for changes in (part.erased_from, part.removed)
            for change in changes
        ]
        return any(place != "local" for place in places)

    @property
    def complete(self) -> bool:
        """Whether the erasure is finished, apart from `not_covered`."""
        failed = self.errors or any(part.error is not None for part in self.partitions)
        return not (failed or self.pending)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as a dict for JSON."""
        return {
            **asdict(self),
            "records": self.records,
            "bytes_read": self.bytes_read,
            "complete": self.complete and not self.dry_run,
        }


def sha256_of(keys: Collection[bytes]) -> tuple[str, ...]:
    """Return the SHA-256 of each key, in hex, sorted."""
    return tuple(sorted(hashlib.sha256(key).hexdigest() for key in set(keys)))
