"""The commit log: the ordered changes of a log, each written at an expected position.

A change is one ledger record (`ledger_records`) and, if it commits records, the chunks to append.
`append` makes it visible atomically.

In every home a change is made by `change`: read `state` and `position`, decide, and `append` at
that position. If another process has written a change at that position, `append` raises
PositionMovedError; then fold the new records, decide again and retry. In a log dir the write lock
excludes other writers, so a single attempt is enough. A bucket can only create an entry if it is
absent, so the loser of a race decides again. `decide` may therefore be called several times. The
function must depend only on the state and the ledger, and have no side effects that matter.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from sparklog.clock import Clock
from sparklog.common import TopicPartition
from sparklog.config import TopicConfig
from sparklog.errors import DataCorruptionError, SparklogError
from sparklog.storage.deleted_topic import DeletedTopic
from sparklog.storage.ledger_records import LedgerRecord
from sparklog.storage.log_state import LogState


class PositionMovedError(SparklogError):
    """Another change was written at the expected position, and this change was not written.

    Fold the new records, decide again on the new state, and retry.
    """

    retriable = True


class StagingExpiredError(SparklogError):
    """Rows were staged too long ago to be committed: stage them again. Only a bucket raises it."""

    retriable = True


class WriterResetError(SparklogError):
    """The writer was reset after this call started, so the plan may be outdated: plan again."""

    retriable = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Staged record batches of a partition, returned by `Stager.finish` for `Log.commit`.

    The batches have magic 2 and offsets from 0. They are in memory, or in a staged file or object.

    Attributes:
        topic: The topic.
        partition: The partition.
        data: The batches, if they are in memory.
        path: The staged file or object. `path`, `position`, `wrapped_key` and `synced_boot_id` are
            set by the home's stager, and only the home reads them.
        size_bytes: The size of the batches.
        records: The number of offsets that the chunk takes.
        min_timestamp: The smallest timestamp, ms.
        max_timestamp: The largest timestamp, ms.
        idempotent: Whether a batch has a producer id.
        copied: Whether the batches are copied from another log.
        synced_boot_id: In a log dir, the boot in which the task synced the file. A commit in the
            same boot can rename such a file instead of copying its bytes.
        position: In a bucket, the position of the chunk in its object.
        wrapped_key: In a bucket, the wrapped data key of the object as JSON, if it is encrypted.
        topic_id: The id of the topic, or "" if the topic did not exist when the rows were staged.
        crc: The CRC-32C of the bytes, if a stager of a bucket computed it; else -1.
        pieces: The locations of a chunk that combines staged chunks of several tasks.

    Examples:
        >>> stager = log.stager(sparklog.Framing())
        >>> stager.add(log.topic("flights"), pa.record_batch({"value": ["1", "2"]}), partition=0)
        >>> [(chunk.topic, chunk.partition, chunk.records) for chunk in stager.finish()]
        [('flights', 0, 2)]
    """

    topic: str
    partition: int
    data: bytes | bytearray | memoryview | None = None
    path: str | None = None
    size_bytes: int
    records: int
    min_timestamp: int  # ms
    max_timestamp: int  # ms
    idempotent: bool = False  # such a chunk is always in memory
    copied: bool = False  # keep timestamps; do not check producers
    synced_boot_id: str | None = None
    position: int = 0  # bytes
    wrapped_key: str | None = None
    topic_id: str = ""
    crc: int = -1
    pieces: Any = field(default=None, repr=False, compare=False)

    @property
    def key(self) -> TopicPartition:
        """The topic and partition of the chunk."""
        return TopicPartition(self.topic, self.partition)


class DuplicateAppend(NamedTuple):
    """The result for batches of an idempotent producer that were appended before.

    Attributes:
        first: The first offset of these batches in the log.
        end: The offset after their last record.
        timestamp: The timestamp of the last batch, ms.
    """

    first: int
    end: int
    timestamp: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A ledger record to write, and the chunks that the record commits, in order.

    Each chunk is appended at the end of its partition at the expected position.

    Attributes:
        record: The record. The home sets `ends`, time, leader epoch and the fields that depend on
            these.
        chunks: The chunks.
        asked_ms: When the caller started to wait for the commit.
        asked_at: The `position` at that time.
    """

    record: LedgerRecord
    chunks: Sequence[Chunk] = ()
    asked_ms: int | None = None
    asked_at: int | None = None


class Ledger(Protocol):
    """The ledger (the ordered log of commits) of a log: the records that have not expired."""

    @property
    def home(self) -> str:
        """The path or URL of the log, for messages."""

    @property
    def oldest(self) -> int:
        """The position of the oldest available record; 0 if none has expired."""

    def records(self, first: int, end: int) -> Iterator[tuple[int, LedgerRecord]]:
        """Yield (position, record) for first <= position < end. The records must be available.

        Raises:
            DataCorruptionError: An object is damaged.
        """

    def records_backwards(self, end: int) -> Iterator[tuple[int, LedgerRecord]]:
        """Yield (position, record) below `end`, from the newest to the oldest available record.

        Records are read in blocks, so a caller that stops early pays only for the blocks that it
        used.
        """

    def commits_of(
        self, end: int, writers: Collection[str]
    ) -> Iterator[tuple[int, LedgerRecord]]:
        """Yield (position, record) below `end` of writers' commits, each writer's newest first.

        Records of other writers may be included. Commits that a reset abandoned may be missing or
        included. Cost: a home without an index of writers reads all records, as
        `records_backwards`.
        """


class FollowedLedger(Ledger, Protocol):
    """The ledger as readers follow it, without a lock.

    New records are appended at its end, and the oldest records expire.
    """

    @property
    def exists(self) -> bool:
        """Whether the home has a ledger. An archive has records, but no ledger."""

    def identity(self) -> object | None:
        """Return a value that changes if the ledger is replaced, or None without a ledger."""

    @property
    def end(self) -> int:
        """The position after the last visible record."""

    def fold(self, state: LogState, end: int, *, first: int | None) -> None:
        """Fold the records [first, end) into `state`; from the last snapshot if `first` is None.

        Raises:
            DataCorruptionError: A record is damaged, or the records have expired.
            StaleReadError: The records have expired.
            FileNotFoundError: The records have expired.
        """

    def dropped(self) -> Mapping[TopicPartition, int]:
        """Return the current end offsets of deleted topics' partitions; empty without a ledger."""

    def deleted(self) -> Collection[DeletedTopic]:
        """Return the deleted topics that can still be restored; empty without a ledger."""

    def retained(self) -> Iterator[tuple[int, LedgerRecord]]:
        """Yield (position, record) of all available records up to now, the oldest first.

        Records that expire during the iteration are skipped.
        """


class CommitMeters(Protocol):
    """Counters of a handle's commits."""

    def committing(self) -> AbstractContextManager[None]:
        """Return a context that counts the exceptions that are raised within it."""

    def committed(self, began_ms: float, sizes: Iterable[int]) -> None:
        """Count a commit that began at `began_ms` (monotonic) with chunks of these sizes."""

    def replayed(self) -> None:
        """Count a replay: a commit that is in the log already."""

    def failed(self, error: BaseException) -> None:
        """Count an error that prevented a write, in this process or in a task of this handle."""


class CommitLog(Ledger, Protocol):
    """The commit log of an open log: makes changes by ledger records. Threads may share it."""

    @property
    def clock(self) -> Clock:
        """The clock for timestamps of records."""

    @property
    def topic_defaults(self) -> TopicConfig:
        """The default configs of new topics."""

    @property
    def state(self) -> LogState:
        """The state of the ledger below `position`; possibly outdated outside of `exclusive`."""

    @property
    def position(self) -> int:
        """The position of the next ledger record, as far as this handle knows."""

    @property
    def offline(self) -> Mapping[TopicPartition, DataCorruptionError]:
        """Offline partitions, each with the error that any use raises. A bucket has none."""

    @property
    def reported_gaps(self) -> set[str]:
        """Writers for which this handle has reported missing micro-batches."""

    def exclusive(self) -> AbstractContextManager[None]:
        """Enter a section in which `state` is as fresh as the home can cheaply ensure.

        In a log dir the section takes the write lock, so no other process changes the log. In a
        bucket other processes may change it; `append` detects that. Not reentrant.

        Raises:
            LogLockedError: Another process holds the lock.
            LogReplacedError: The log was replaced.
            StorageUnavailableError: The store or the disk does not answer.
        """

    def catch_up(self) -> int:
        """Fold records of other processes; return the new `position`.

        The position is unchanged if there are no new records. Can be called within `exclusive`,
        where a log dir never has new records.
        """

    def append(self, change: Change, *, expected: int) -> LedgerRecord:
        """Write a change at position `expected`, within `exclusive`; return the written record.

        When it returns, the change is durable (depending on the log's flush option), `state` and
        `position` include it, and readers see it now or as soon as they poll.

        Raises:
            PositionMovedError: Another change is at that position. `state` and `position` include
                that change.
            CommitUnknownError: It is unknown whether the change was written.
            StorageUnavailableError: The change was not written, and the log is unchanged.
            InvalidRequestError: The change was not written, and the log is unchanged.
            DataCorruptionError: The change was not written, and the log is unchanged.
        """

    def check(self, chunks: Sequence[Chunk]) -> None:
        """Reject chunks that this home can't append, before the first write.

        Raises:
            StorageUnavailableError: A disk is full.
            DataCorruptionError: A partition is offline.
            InvalidRequestError: A chunk is missing or differs from the staged data.
        """

    def check_producers(
        self, chunks: Sequence[Chunk]
    ) -> "list[DuplicateAppend | SparklogError | None]":
        """Check idempotent producers' batches against the producer state of their partitions.

        Call within `exclusive`, with chunks in memory. Each chunk is checked as if the valid chunks
        before it were appended.

        Returns:
            A result per chunk: None if the chunk can be appended or has no producer id, a
            DuplicateAppend if the batches were appended before, or the error that rejects the
            chunk. The error is a FencedError, an OutOfOrderSequenceError, an InvalidRequestError
            (an open transaction), or the error of an unusable partition.
        """

    def release_staged(self, chunks: Sequence[Chunk]) -> None:
        """Release the staged data of a change that was written. Failures are not raised.

        A log dir deletes the files that the commit copied. A bucket keeps the staged objects, which
        belong to the log now.
        """

    @property
    def sync(self) -> bool:
        """Whether a change is durable when `append` returns (flush=commit)."""

    @property
    def meters(self) -> CommitMeters:
        """Counters of this handle's commits."""

    def make_durable(self) -> None:
        """Make all records of `state` durable, within `exclusive`. No-op if they always are."""

    def outcome(self, position: int, attempt: str) -> LedgerRecord | None:
        """Resolve an append that ended with CommitUnknownError.

        Call outside of `exclusive`.

        Returns:
            The written record, or None if the append failed. None is final: the append can't
            succeed later.

        Raises:
            InvalidRequestError: No append can have been attempted at that position.
            StorageUnavailableError: The store does not answer.
        """

    def placement(self, partitions: range) -> dict[int, int]:
        """Choose the log dirs of a topic's new partitions; only the home interprets the numbers."""


def change(
    commits: CommitLog, decide: Callable[[LogState], Change | None]
) -> LedgerRecord | None:
    """Append the change that `decide` returns for the log's state, if it returns a change.

    If `decide` returns None or raises, the state may be outdated: new records are folded and
    `decide` is called again. So a successful change needs no additional request, and no rejection
    depends on outdated state. Raises the errors of `decide` and of `CommitLog.append`.
    """
    while True:
        with commits.exclusive():
            before = commits.position
            try:
                wanted = decide(commits.state)
            except SparklogError:
                # Without new records the decision was based on the newest state, so it is final.
                if commits.catch_up() == before:
                    raise
                continue
            if wanted is None:
                if commits.catch_up() == before:
                    return None
                continue
            try:
                return commits.append(wanted, expected=before)
            # `exclusive` waits before the next attempt, so that many writers of a bucket do not
            # collide again and again.
            except PositionMovedError:
                continue
