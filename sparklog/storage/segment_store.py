"""Protocol for writing and deleting closed segments. Module `segments` is for reading.

Like KIP-405's RemoteStorageManager, a segment store moves only bytes. The caller's metadata
(`__remote_log_metadata` of a tier, the ledger of a bucket) decides which segments exist. The caller
writes it before and after each call:

    put      record "started"   ->  put     ->  record "finished"
    delete   record "started"   ->  delete  ->  forget the segment

After a crash, the next process that finds the first record repeats the call. Both calls can be
repeated.

- A put is atomic for readers that see only the store. In a bucket, the manifest is written last and
  makes the segment visible. An interrupted put leaves bytes that no reader finds. Their names
  contain the segment's id: a repeated put overwrites them, `delete` of that id removes them, and
  the home's sweep removes unknown objects and unfinished uploads (for a tier:
  `tiered.copying.orphans`).
- A deletion first hides each segment from such readers, then deletes its bytes. If interrupted, it
  leaves bytes that no reader finds, for the next `delete` or sweep.

A cleaner or a merge puts a segment that `replaces` others, and deletes the replaced segments later.
A log dir's own segments are not written this way: they are rolled, adopted (`PartitionLog.adopt`)
and swapped under the write lock, where a single step changes files and ledger together.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from sparklog.errors import SparklogError
from sparklog.format.checkpoint_files import Epochs
from sparklog.storage.committed_appends import CommittedAppends
from sparklog.storage.segments import SegmentLog

SegmentT = TypeVar("SegmentT")
"""A home's metadata of a segment, including its id; RemoteLogSegmentMetadata in KIP-405."""


class SourceChangedError(SparklogError):
    """The source of a segment was removed or replaced while the segment was written."""


def source_changed(where: str) -> SourceChangedError:
    """Return the error for a segment at `where` that changed after its upload was planned."""
    return SourceChangedError(f"{where} was retired or replaced while it was copied", path=where)


class LogSegmentData(Protocol):
    """The contents of a closed segment, in any home. Source: LogSegmentData (KIP-405).

    Offset index and time index are not included, because a put rebuilds them from the batches.
    """

    @property
    def where(self) -> str:
        """The log's path or URL, for messages."""

    def version(self) -> object:
        """Return a value that changes if the segment is replaced.

        Raises:
            SourceChangedError: The segment for which the put was planned no longer exists.
        """

    def log(self) -> AbstractContextManager[SegmentLog]:
        """Open the log. Raises FileNotFoundError."""

    def transaction_index(self) -> bytes:
        """Return the contents of the `.txnindex`; empty if no transaction was aborted."""

    def producer_snapshot(self) -> bytes:
        """Return the producer snapshot at the segment's end; rebuilt if the file is missing."""

    def leader_epochs(self) -> Epochs:
        """Return the leader epochs up to the segment's end; empty if they are unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentPut(Generic[SegmentT]):
    """A segment to put.

    Attributes:
        segment: The segment's metadata, as the caller recorded them before the put.
        data: The contents.
        config: The topic's configs under Kafka's names.
        interval_bytes: The topic's index.interval.bytes.
        resumed: Whether an earlier process may have put the segment already.
        replaces: Older segments that this segment replaces.
        gaps: Whether offsets may be missing.
        committed: The appends to compare the batches with, if known.
    """

    segment: SegmentT
    data: LogSegmentData
    config: dict[str, str]
    interval_bytes: int
    resumed: bool = False
    replaces: tuple[SegmentT, ...] = ()
    gaps: bool = False
    committed: CommittedAppends | None = None


@dataclass(frozen=True, slots=True)
class PutResult(Generic[SegmentT]):
    """The result of a put: the stored segment and its size in the store, or an error.

    A SourceChangedError or a DataCorruptionError (the source is damaged) concerns only this
    segment: it is not put, and the caller deletes the bytes that were written. After any other
    error (the store does not answer, or `check` raised) the put can be repeated.
    """

    put: SegmentPut[SegmentT]
    segment: SegmentT | None = None
    stored_bytes: int = 0
    error: Exception | None = None


class SegmentStore(Protocol[SegmentT]):
    """A store of closed segments. Threads may share it. Source: RemoteStorageManager (KIP-405).

    `check` is called before each read and before each request that changes something. An exception
    from `check` (the lease was lost, the service stops) ends the work at that point.
    """

    def put(
        self, puts: Sequence[SegmentPut[SegmentT]], *, check: Callable[[], None]
    ) -> Iterator[PutResult[SegmentT]]:
        """Put segments, possibly in parallel, and yield each result as soon as it is known.

        Errors are returned in the results. An error that concerns several segments is the result of
        all puts that have not started. Source: copyLogSegmentData.
        """

    def delete(self, segments: Sequence[SegmentT], *, check: Callable[[], None]) -> None:
        """Delete segments. Segments that are missing or incomplete are not an error.

        The caller has recorded the deletion before, so readers no longer look for these offsets
        here. Source: deleteLogSegmentData.

        Raises:
            StorageUnavailableError: The store does not answer. Some segments may be deleted.
        """
