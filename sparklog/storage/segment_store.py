"""Who makes and removes a partition's closed segments: the writing half of `segments`.

Bytes only, as KIP-405's RemoteStorageManager: which segments count is for the caller's metadata (a
tier's `__remote_log_metadata`, a bucket home's ledger), which is written before and after:

    put      told that it begins  ->  put     ->  told that it is there
    delete   told that it goes    ->  delete  ->  forgotten

Cut in the middle, either is done again by whoever finds the first record: each may be repeated.

- A put is atomic for readers of the store alone (in a bucket, the manifest comes last and makes the
  segment visible). Cut before that it leaves bytes that no reader finds. They have the segment's id
  in their names: the same put again takes their place, `delete` of that id removes them, and the
  home's sweep removes what nobody knows (a tier: `tiered.copying.orphans`; unfinished uploads too).
- A deletion takes each segment from such readers first and its bytes then. Cut in between it leaves
  bytes that no reader finds, for the next `delete` or the sweep.

A cleaner or a merge puts a segment that `replaces` others, and deletes those later. A log dir's
own segments aren't made this way: they are rolled, adopted (`PartitionLog.adopt`) and swapped under
the write lock, where one step changes files and ledger together.
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
"""What a home knows of a segment, its id included; RemoteLogSegmentMetadata in KIP-405."""


class SourceChangedError(SparklogError):
    """What a segment was to be made of is not there any more, or another stands in its place."""


def source_changed(where: str) -> SourceChangedError:
    """Return the error for a source at `where` that isn't what the put was planned for."""
    return SourceChangedError(f"{where} was retired or replaced while it was copied", path=where)


class LogSegmentData(Protocol):
    """The contents of a closed segment, wherever they lie. Source: LogSegmentData (KIP-405).

    Offset and time index aren't among them: a put makes them anew out of the batches.
    """

    @property
    def where(self) -> str:
        """The log's path or URL, for messages."""

    def version(self) -> object:
        """Return what stays equal as long as the segment is the same.

        Raises: SourceChangedError: the one that the put was planned for isn't there any more.
        """

    def log(self) -> AbstractContextManager[SegmentLog]:
        """Open the log. Raises FileNotFoundError."""

    def transaction_index(self) -> bytes:
        """Return the contents of the `.txnindex`; nothing if no transaction was aborted."""

    def producer_snapshot(self) -> bytes:
        """Return the producers' snapshot at the segment's end, made anew if it is gone."""

    def leader_epochs(self) -> Epochs:
        """Return the leader epochs up to the segment's end; none if nobody knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentPut(Generic[SegmentT]):
    """A segment to put. `segment`: it, as it was told of before.

    `config`: the topic's, under Kafka's keys, and `interval_bytes` its index.interval.bytes;
    `gaps`: whether offsets may be missing; `replaces`: older segments whose place it takes;
    `resumed`: another process, or an earlier life of this one, may have put it already.
    `committed`: the appends that the batches are compared with, None if they are not known.
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
    """How a put ended: with the segment as it is there, and its bytes in the store; or an error.

    A SourceChangedError or DataCorruptionError (the source is damaged) is that segment's own: it is
    not put, and what was written of it is for the caller to delete. After any other error (the
    store doesn't answer, what `check` raised) it may be put again.
    """

    put: SegmentPut[SegmentT]
    segment: SegmentT | None = None
    stored_bytes: int = 0
    error: Exception | None = None


class SegmentStore(Protocol[SegmentT]):
    """Closed segments of partitions. Source: RemoteStorageManager (KIP-405). Threads may share it.

    `check` is called before each piece that is read and each request that changes something; what
    it raises (a lease that is lost, a stop) ends the work there.
    """

    def put(
        self, puts: Sequence[SegmentPut[SegmentT]], *, check: Callable[[], None]
    ) -> Iterator[PutResult[SegmentT]]:
        """Put segments, maybe several at once, and yield each as it ends; errors are in the result.

        What isn't an error of one segment alone is the result of all that haven't begun by then.
        Source: copyLogSegmentData.
        """

    def delete(self, segments: Sequence[SegmentT], *, check: Callable[[], None]) -> None:
        """Remove segments; what is gone already, or was put in part, is fine.

        The caller has told before that they go: nobody looks for their offsets there any more.
        Raises: StorageUnavailableError: some may be gone. Source: deleteLogSegmentData.
        """
