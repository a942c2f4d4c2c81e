"""Protocols for reading the segments of a partition. For writing see `segment_store`.

In a log dir segments are files, in a tiered topic files and objects, in a bucket objects. Extents
of a bucket implement the same protocols: a `SegmentLog` is a byte range of an object (`pread`
patches base offset and leader epoch into each batch, because a batch's CRC does not cover them), a
`SegmentMetadata` comes from the log's state, and an extent without indexes is read from its start.

A listing can become stale: after it, segments can be rolled, deleted, swapped by the cleaner, or
removed by recovery. Reading a listed segment then raises. Callers list again and retry for about a
second before they report an error:

- StaleReadError: the segments changed since the listing. Retriable.
- FileNotFoundError: a listed file or object is missing. If retries do not help, data are lost.
- UndeterminedLossError: a file or object is missing, but it is unknown whether it is lost.
- DataCorruptionError: a file or object is damaged.
- StorageUnavailableError: the object store or the disk does not answer.
"""

import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeGuard

from sparklog.errors import SparklogError
from sparklog.format.checkpoint_files import Epochs


class StaleReadError(SparklogError):
    """The segments changed since the listing (rolled, retired, undone): list and read again."""

    retriable = True


class UndeterminedLossError(FileNotFoundError):
    """A part of a segment is missing, but possibly not lost.

    Related objects are missing too, so the request may have gone to the wrong object store; or the
    store's answers contradict each other, or access is denied.
    """


IndexKind = Literal[".index", ".timeindex", ".txnindex"]
"""An index of a segment by its file suffix: INDEX, TIMEINDEX, TXNINDEX of format.names."""


@dataclass(frozen=True, slots=True)
class SegmentMetadata:
    """A listed segment with the offsets [base, end).

    Attributes:
        base: The base offset.
        end: The offset after the last record. The active segment, which may grow, has None.
        size: The size of the log in bytes.
        max_timestamp: The largest timestamp in ms, -1 if no record has a timestamp. None means that
            the segment must be read to find it.
        local: Whether the segment is on this host's disks.
        where: The path or URL of the log, for messages.
    """

    base: int
    end: int | None
    size: int
    max_timestamp: int | None
    local: bool
    where: str


class SegmentLog(Protocol):
    """The bytes of a segment's log or index, readable by ranges."""

    path: str
    """The path or URL, for messages."""

    def pread(self, size: int, at: int) -> bytes:
        """Return the bytes [at, at + size); fewer only at the end of the log."""

    def size(self) -> int:
        """Return the current size in bytes. The active segment grows."""


class SupportsPreadInto(Protocol):
    """A `SegmentLog` that is a file of this host and reads into a buffer of the caller."""

    path: str

    def pread_into(self, buffer: memoryview, at: int) -> int:
        """Fill `buffer` from position `at`; return the number of bytes, fewer at the log's end."""

    def stat(self) -> tuple[int, int, int]:
        """Return device, inode, and the modification time in ns."""

    def duplicate(self) -> int:
        """Duplicate the open file's descriptor. The caller closes the result."""


def is_local_file(log: SegmentLog) -> TypeGuard[SupportsPreadInto]:
    """Return True if a segment's log is a file of this host."""
    # Called for every read: `isinstance` with a runtime-checkable protocol looks up every member.
    return hasattr(log, "pread_into")


@dataclass(frozen=True, slots=True)
class IndexBytes:
    """The bytes of an index, in memory or in a mapped file.

    `mapping` is the mapped file. A reference to it must be held while `data` is used.
    """

    data: memoryview
    mapping: object = None


class PartitionSegments(Protocol):
    """Read access to the segments of a partition. Threads may share the object.

    Results are cached only where a method's docstring says so. Every method except `max_timestamp`
    may raise the errors that the module's docstring lists.
    """

    gaps: bool
    """Whether the partition was compacted: offsets may be missing, closed segments be swapped."""

    @property
    def where(self) -> str:
        """The directory or URL of the partition, for messages."""

    @property
    def topic_id(self) -> str | None:
        """The topic id of the partition, read before its other data, or None."""

    def bases(self) -> list[int]:
        """List the base offsets, ascending. Cost: a listing, without a stat per segment."""

    def metadata(self) -> list[SegmentMetadata]:
        """List the segments by base offset. Cost: a listing and a stat per local segment."""

    def max_timestamp(self, base: int) -> int | None:
        """Return a listed segment's largest timestamp (ms; -1: none), if known without a read."""

    def modified_ms(self, base: int) -> int:
        """Return when the segment was last written: the age of a segment without timestamps."""

    def log(self, base: int) -> SegmentLog:
        """Open a segment's log."""

    def index(self, base: int, kind: IndexKind) -> SegmentLog | None:
        """Open an index, which may grow. Return None if the segment has no such index."""

    def closed_index(self, base: int, kind: IndexKind) -> IndexBytes | None:
        """Return an index of a segment that no longer changes, or None without such an index."""

    def producer_snapshots(self) -> list[int]:
        """List the offsets of the producer snapshots, ascending."""

    def producer_snapshot(self, offset: int) -> bytes:
        """Return the contents of a producer snapshot: the state of all records below `offset`."""

    def leader_epochs(self) -> Epochs:
        """Return the partition's leader epochs; empty if they are unknown. Cost: a small file."""

    def first_local_base(self) -> int | None:
        """Return the base offset of the first segment on this host's disks, if any."""

    def remote_end(self) -> int | None:
        """Return the offset after the last record with a remote copy. Without copies, None."""


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """Device and inode of `path`; they change if the log is replaced."""

    path: str
    device: int
    inode: int


@dataclass(frozen=True, slots=True)
class LocalFiles:
    """The segments of a partition that are files of this host.

    For a reader with a plan and without a view, which makes no listings and no requests. If the
    files differ from the plan, a reader with a view decides how to continue.

    Attributes:
        directory: The partition's directory.
        bases: The base offsets of all local segments, ascending.
        gaps: As in `PartitionSegments`.
        identities: The log dirs at the time of the listing. They detect a replaced log.
    """

    directory: str
    bases: Sequence[int]
    gaps: bool
    identities: tuple[FileIdentity, ...]

    def holding(self, start: int, end: int) -> Sequence[int]:
        """Return the base offsets of the segments that may contain offsets [start, end).

        The result is empty if there is no segment, or if the first segment starts above `start`.
        """
        first = bisect.bisect_right(self.bases, start) - 1
        return self.bases[first : bisect.bisect_left(self.bases, end)] if first >= 0 else ()

    def following(self, end: int) -> int | None:
        """Return the base offset of the first segment at or after `end`, or None."""
        at = bisect.bisect_left(self.bases, end)
        return self.bases[at] if at < len(self.bases) else None
