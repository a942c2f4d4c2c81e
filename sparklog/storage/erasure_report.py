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
    """The offsets of erased records.

    Attributes:
        ranges: Ascending ranges [first, end).
        more: The number of offsets beyond the first ranges, which are not listed.

    Examples:
        >>> import numpy as np
        >>> from sparklog.service import ErasedOffsets
        >>> offsets = ErasedOffsets()
        >>> offsets.add(np.array([3, 4, 5, 9]))
        >>> offsets.ranges
        [(3, 6), (9, 10)]
    """

    ranges: list[tuple[int, int]] = field(default_factory=list)
    more: int = 0

    def add(self, offsets: NDArray[Any]) -> None:
        """Add offsets.

        Args:
            offsets: The offsets, ascending.
        """
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
        """Add the offsets of another set. Common offsets count once, except for `more`.

        Args:
            other: The other set.
        """
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
    """A segment, a remote copy or an extent that an erasure rewrote.

    Attributes:
        place: "local", "remote" (a copy in remote storage) or "bucket".
        name: The file or object.
        base: The base offset.
        end: The offset after the last record.
        batches: The number of batches that contained erased records.
        records: The number of erased records; 0 means that the data were copied unchanged out of an
            object that had to be deleted.
        bytes_before: The size before the erasure.
        bytes_after: The size after the erasure.
        links: Hard links to the old file (of forks), which still contain the records.

    Examples:
        >>> from sparklog.service import erase
        >>> partition, = [p for p in erase("log", "flights", [b"N1"]).partitions if p.records]
        >>> [(segment.place, segment.records) for segment in partition.erased_from]
        [('local', 67)]
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
    """A file or object that an erasure deleted, because it contained or may have contained records.

    Attributes:
        place: "local", "remote" or "bucket".
        name: The file or object.
        bytes: The size.
        why: The reason.

    Examples:
        >>> from sparklog.service import erase
        >>> report = erase("log", "flights", [b"N1"], dry_run=True)
        >>> [removed.name for partition in report.partitions for removed in partition.removed]
        []
    """

    place: str
    name: str
    bytes: int
    why: str


@dataclass(slots=True, kw_only=True)
class PartitionErasure:
    """The result of an erasure in a partition.

    Attributes:
        topic: The topic.
        partition: The partition.
        end: The end offset when the erasure began; all records below it were checked.
        offsets: The erased records; a record with a local and a remote copy counts once.
        bytes_read: The number of bytes that were checked.
        erased_from: The segments, copies and extents that were rewritten.
        removed: The files and objects that were deleted.
        error: Why the partition was not erased, or only in part; None if it was.

    Examples:
        >>> from sparklog.service import erase
        >>> report = erase("log", "flights", [b"N1"], dry_run=True)
        >>> [partition.error for partition in report.partitions]
        [None, None]
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
    """The result of an erasure.

    Attributes:
        path: The log.
        log_id: The id of the log.
        topic: The topic.
        topic_id: The id of the topic.
        time_ms: When the erasure began, in milliseconds since the epoch.
        dry_run: Whether records were only counted.
        keys_sha256: The SHA-256 digests of the keys.
        null_key: Whether records without a key were erased.
        before: The limit by offset or time, as text.
        partitions: The results of the partitions.
        pending: Places that still contain, or may contain, such records, and what has to be done.
        not_covered: Places that this log does not know or change.
        errors: Failures of remote storage.
        took_ms: The duration, in milliseconds.

    Examples:
        >>> from sparklog.service import erase
        >>> report = erase("log", "flights", [b"N1"], dry_run=True)
        >>> report.records, report.dry_run
        (67, True)
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
        """The number of bytes of segments that were checked, in all partitions."""
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
        """Whether all matching records that were committed before `time_ms` are erased.

        True if no place is pending and no partition failed, whatever `not_covered` contains.
        """
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
