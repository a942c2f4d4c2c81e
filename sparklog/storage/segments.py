"""The segments of one partition, as whoever reads them sees them. Writing: `segment_store`.

A log dir keeps them as files, a tier as files and objects, a bucket alone as objects. Extents of
a home in an object store fit as well: an object and a byte range are a `SegmentLog` (base offset
and leader epoch lie outside of a batch's CRC and are patched in `pread`), what its state says of
them is a `SegmentMetadata`, and an extent without indexes is read from its start.

What may be stale: a listing is true when it is made. Segments are rolled, deleted, swapped by the
cleaner or undone by recovery afterwards, and reading one that was listed then raises. Who listed
before lists anew and tries again, for a second or so, before it believes an error:

- StaleReadError: the segments aren't as listed. Retriable.
- FileNotFoundError: what was listed isn't there (any more). If it stays so, data are lost.
- UndeterminedLossError: it isn't where it should be, but nobody can tell now that it is lost.
- DataCorruptionError: it is there and damaged.
- StorageUnavailableError: the store or the disk doesn't answer.
"""

from dataclasses import dataclass
from typing import Literal, Protocol, TypeGuard

from sparklog.errors import SparklogError
from sparklog.format.checkpoint_files import Epochs


class StaleReadError(SparklogError):
    """The segments are not as listed (rolled, retired, undone): list anew and read again."""

    retriable = True


class UndeterminedLossError(FileNotFoundError):
    """Something of a segment isn't there, but it is not known to be lost.

    Nothing that belongs with it is there either, so another store was asked than the one that has
    it; or the store contradicts itself, or doesn't let anybody look.
    """


IndexKind = Literal[".index", ".timeindex", ".txnindex"]
"""An index of a segment by its file's suffix: INDEX, TIMEINDEX, TXNINDEX of format.names."""


@dataclass(frozen=True, slots=True)
class SegmentMetadata:
    """A segment as listed.

    It holds the offsets [base, end). `end` is None for the last one, which may grow. `size`: bytes
    of its log. `max_timestamp` (ms; -1: no record has one): None where it takes a look into the
    segment. `local`: its bytes are on this host's disks. `where`: its log's path or URL, for
    messages.
    """

    base: int
    end: int | None
    size: int
    max_timestamp: int | None
    local: bool
    where: str


class SegmentLog(Protocol):
    """Bytes of a segment that can be read by ranges: of its log, or of an index."""

    path: str
    """Where they lie, for messages."""

    def pread(self, size: int, at: int) -> bytes:
        """Return the bytes [at, at + size), fewer only where the log ends."""

    def size(self) -> int:
        """Return the size in bytes; that of the last segment grows."""


class SupportsPreadInto(Protocol):
    """A `SegmentLog` that reads into memory of the caller's: a file of this host."""

    path: str

    def pread_into(self, buffer: memoryview, at: int) -> int:
        """Fill `buffer` with the bytes from `at` on; returns how many, fewer where the log ends."""

    def stat(self) -> tuple[int, int, int]:
        """Return device, inode, and time of the last modification in ns."""

    def duplicate(self) -> int:
        """Return another descriptor of the open file, which the caller closes."""


def is_local_file(log: SegmentLog) -> TypeGuard[SupportsPreadInto]:
    """Tell whether a segment's log is a file of this host. Cheaper than a check of the protocol."""
    return hasattr(log, "pread_into")


@dataclass(frozen=True, slots=True)
class IndexBytes:
    """A whole index: `data` is in memory, or mapped as long as somebody holds `mapping`."""

    data: memoryview
    mapping: object = None


class PartitionSegments(Protocol):
    """What a reader asks of one partition. Nothing is kept but what is said here.

    Threads may share it. Every method but `max_timestamp` may raise what the module's text lists.
    """

    gaps: bool
    """Offsets may be missing, and closed segments be swapped: a cleaner was at work."""

    @property
    def where(self) -> str:
        """Where the partition lies (a directory or a URL), for messages."""

    @property
    def topic_id(self) -> str | None:
        """What the partition carried before anything else of it was read; None if it has none."""

    def bases(self) -> list[int]:
        """Return the base offsets, ascending, listed now. Cost: one listing, no look at each."""

    def metadata(self) -> list[SegmentMetadata]:
        """Return the segments by base offset, listed now. Cost: a stat of each that is local."""

    def max_timestamp(self, base: int) -> int | None:
        """Return a listed segment's largest timestamp (ms; -1: none) where no look is needed."""

    def modified_ms(self, base: int) -> int:
        """Return when the segment was last written: as old counts one without timestamps."""

    def log(self, base: int) -> SegmentLog:
        """Open a segment's log."""

    def index(self, base: int, kind: IndexKind) -> SegmentLog | None:
        """Open an index, which may grow; None if the segment has none."""

    def closed_index(self, base: int, kind: IndexKind) -> IndexBytes | None:
        """Return an index of a segment that nobody changes any more; None if it has none."""

    def producer_snapshots(self) -> list[int]:
        """Return the offsets of the producer snapshots, ascending, listed now."""

    def producer_snapshot(self, offset: int) -> bytes:
        """Return a producer snapshot's contents: the state up to, excluding, `offset`."""

    def leader_epochs(self) -> Epochs:
        """Return the partition's leader epochs; none if nobody knows. Cost: one small file."""

    def first_local_base(self) -> int | None:
        """Return the base of the first segment on this host's disks; None if all are remote."""

    def remote_end(self) -> int | None:
        """Return the offset behind the highest record with a remote copy; None if there is none."""
