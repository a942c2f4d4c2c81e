"""The commit log of a log: its changes in one order, each written against the position it expects.

A change is one ledger record (`ledger_records`) and, where it commits records, the chunks that it
takes in. It exists for everybody, or for nobody, from the moment at which `append` wrote it.

How a change is made, in every home: read `state` and `position`, decide, `append` at that position.
Where somebody else's change lies there by now, PositionMovedError: fold what is new, decide all
anew, try again. That is `change`, and nothing else decides. A home in which writers take turns (a
lock) decides once, with the turn held; one that can only create an entry if it is absent decides
again as often as it loses. So `decide` may be called several times, sees nothing but the state and
what the ledger says, and does nothing that can't be forgotten.
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
    """Another change lies at the expected position: nothing was written; decide anew."""

    retriable = True


class StagingExpiredError(SparklogError):
    """Rows were staged so long ago that nobody may commit them any more: stage them again."""

    retriable = True


class WriterResetError(SparklogError):
    """The writer was reset after this call began, which may have planned without it: plan again."""

    retriable = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Staged record batches of one partition, returned by `Stager.finish` for `Log.commit`.

    The batches have magic 2 and offsets from 0. They are in memory, or in a staged file or object.
    `path`, `position`, `wrapped_key`, `synced_boot_id`: where the home's stager put it, and what it
    vouches for; for the home alone to read. Of a log dir: a file in it, and the boot in which its
    task synced it. Of a store: an object, the byte at which the chunk begins in it, and its data
    key as JSON where it is encrypted. `topic_id`: of the topic that it is meant for, "" if that
    wasn't there yet. `pieces`: where it lies, if it was put together of what several tasks staged.
    `records`: offsets that it takes. `crc`: the CRC-32C of its bytes, where a stager of a store
    computed it; else -1.
    """

    topic: str
    partition: int
    data: bytes | bytearray | memoryview | None = None
    path: str | None = None
    size_bytes: int
    records: int
    min_timestamp: int  # ms
    max_timestamp: int  # ms
    idempotent: bool = False  # its batches carry a producer: in memory
    copied: bool = False  # from another log: its producers and times aren't judged, nor stamped
    synced_boot_id: str | None = None
    position: int = 0  # bytes
    wrapped_key: str | None = None
    topic_id: str = ""
    crc: int = -1
    pieces: Any = field(default=None, repr=False, compare=False)

    @property
    def key(self) -> TopicPartition:
        """Its partition."""
        return TopicPartition(self.topic, self.partition)


class DuplicateAppend(NamedTuple):
    """Where an idempotent producer's batches are already; `timestamp`: of the last one, ms."""

    first: int
    end: int
    timestamp: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A record that is to be written, and the chunks that it commits, in their order.

    Each chunk goes to the end that its partition has at the expected position. The record's `ends`,
    time and leader epoch, and what depends on these, are the home's to fill in, for it writes them.
    `asked_ms`: when the caller began to wait for it, `asked_at`: what `position` was then.
    """

    record: LedgerRecord
    chunks: Sequence[Chunk] = ()
    asked_ms: int | None = None
    asked_at: int | None = None


class Ledger(Protocol):
    """The records of a log's changes, as far as they are still held."""

    @property
    def home(self) -> str:
        """Where the log is, a path or a URL: for messages."""

    @property
    def oldest(self) -> int:
        """The position of the oldest record that is held; 0: none has expired."""

    def records(self, first: int, end: int) -> Iterator[tuple[int, LedgerRecord]]:
        """Yield (position, record) for first <= position < end, which must be held.

        Raises: DataCorruptionError.
        """

    def records_backwards(self, end: int) -> Iterator[tuple[int, LedgerRecord]]:
        """Yield (position, record) below `end`, the newest first, to the oldest that is held.

        Cost: read in pieces, so a caller that stops early pays for what it saw.
        """

    def commits_of(
        self, end: int, writers: Collection[str]
    ) -> Iterator[tuple[int, LedgerRecord]]:
        """Yield (position, record) below `end` of writers' commits, each writer's newest first.

        Other records may come too, and what resets took back may be left out, or come with them.
        Cost: a home that can't tell whose a record is reads all, as `records_backwards`.
        """


class FollowedLedger(Ledger, Protocol):
    """The ledger as readers see it, without a turn: it grows, and its oldest records expire."""

    @property
    def exists(self) -> bool:
        """Whether this home keeps one; an archive, which has the records alone, doesn't."""

    def identity(self) -> object | None:
        """Return what tells this ledger from another one in its place; None: there is none yet."""

    @property
    def end(self) -> int:
        """The position after the last record that readers see by now."""

    def fold(self, state: LogState, end: int, *, first: int | None) -> None:
        """Fold the records [first, end) into `state`; from the last snapshot if `first` is None.

        Raises: DataCorruptionError; it, StaleReadError or FileNotFoundError: what was asked for has
        expired meanwhile.
        """

    def dropped(self) -> Mapping[TopicPartition, int]:
        """Return where the partitions of deleted topics ended, as of now; none without a ledger."""

    def deleted(self) -> Collection[DeletedTopic]:
        """Return the deleted topics that can be given back, as of now; none without a ledger."""

    def retained(self) -> Iterator[tuple[int, LedgerRecord]]:
        """Yield (position, record) of all that is held up to now, the oldest first.

        What expires while it is read is left out.
        """


class CommitMeters(Protocol):
    """What counts the commits of a handle."""

    def committing(self) -> AbstractContextManager[None]:
        """Count what fails within."""

    def committed(self, began_ms: float, sizes: Iterable[int]) -> None:
        """Count a commit that began at `began_ms` (monotonic) with chunks of these sizes."""

    def replayed(self) -> None:
        """Count a commit that was in the log already."""

    def failed(self, error: BaseException) -> None:
        """Note what kept a write from the log, here or in one of this handle's tasks."""


class CommitLog(Ledger, Protocol):
    """The changes of one log, as one handle on it sees them. Threads may share it."""

    @property
    def clock(self) -> Clock:
        """What records are stamped by."""

    @property
    def topic_defaults(self) -> TopicConfig:
        """What a new topic's config has where it says nothing else."""

    @property
    def state(self) -> LogState:
        """What the ledger below `position` folds to; a mere hint outside of `exclusive`."""

    @property
    def position(self) -> int:
        """The ledger offset of the next record, by what this handle knows."""

    @property
    def offline(self) -> Mapping[TopicPartition, DataCorruptionError]:
        """Partitions that can't be used, and what using one raises. None where nothing can miss."""

    @property
    def reported_gaps(self) -> set[str]:
        """Writers of which this handle has said that micro-batches are missing."""

    def exclusive(self) -> AbstractContextManager[None]:
        """Take a turn: within it, `state` is as fresh as the home can make it without losing time.

        In a log dir, where one process at a time writes, nobody else's change comes between; in a
        store nothing keeps others out, and `append` finds out. Not reentrant.
        Raises: LogLockedError, LogReplacedError, StorageUnavailableError.
        """

    def catch_up(self) -> int:
        """Fold what others have written; returns `position`: a higher one is news.

        Within `exclusive` too, where a log dir has no news: nobody else had a turn since.
        """

    def append(self, change: Change, *, expected: int) -> LedgerRecord:
        """Write a change at position `expected`, within `exclusive`; returns the record as written.

        On return it is durable (or as durable as the log's options ask for), `state` and `position`
        are past it, and readers see it or will without anybody's help.
        Raises: PositionMovedError: another change lies there; state and position are past it.
        CommitUnknownError. StorageUnavailableError, InvalidRequestError, DataCorruptionError:
        nothing was written, and the log is as it was.
        """

    def check(self, chunks: Sequence[Chunk]) -> None:
        """Refuse, before anything is written, chunks that this home can't take now.

        Raises: StorageUnavailableError: there is no room. DataCorruptionError: a partition is
        offline. InvalidRequestError: a chunk isn't there any more, or isn't what was staged.
        """

    def check_producers(
        self, chunks: Sequence[Chunk]
    ) -> "list[DuplicateAppend | SparklogError | None]":
        """Judge idempotent producers' batches by what the partitions hold of these producers.

        Within `exclusive`. Each chunk, in memory, in its order and as if those before it that may
        be written were: None: it may be, as any that is of no producer. Where its batches are, if
        they were appended before. FencedError, OutOfOrderSequenceError, InvalidRequestError (an
        open transaction), or what keeps its partition from being used: it may not.
        """

    def discard(self, chunks: Sequence[Chunk]) -> None:
        """Let go of what was staged for a change that is written. Raises nothing."""

    @property
    def sync(self) -> bool:
        """Whether what `append` has written is durable when it returns (flush=commit)."""

    @property
    def meters(self) -> CommitMeters:
        """What counts this handle's commits."""

    def make_durable(self) -> None:
        """Make all that `state` says durable, within `exclusive`; nothing where it always is."""

    def outcome(self, position: int, attempt: str) -> LedgerRecord | None:
        """Return what was written by an append that ended with CommitUnknownError.

        None: nothing was, and nothing will be: this decides it. Without `exclusive`.
        Raises: InvalidRequestError: nothing can have been tried there. StorageUnavailableError.
        """

    def placement(self, partitions: range) -> dict[int, int]:
        """Choose where new partitions of a topic go; only the home knows what the numbers mean."""


def change(
    commits: CommitLog, decide: Callable[[LogState], Change | None]
) -> LedgerRecord | None:
    """Make the change that `decide` wants at the log's state; None where it wants none.

    Where it wants none, or refuses, the state may just be old: what is new is folded first, and
    it decides again. So a change that goes through asks the home for no news, and no refusal
    hangs on what was known once.
    Raises: what `decide` and `CommitLog.append` raise.
    """
    while True:
        with commits.exclusive():
            before = commits.position
            try:
                wanted = decide(commits.state)
            except SparklogError:
                if commits.catch_up() == before:
                    raise
                continue
            if wanted is None:
                if commits.catch_up() == before:
                    return None
                continue
            try:
                return commits.append(wanted, expected=before)
            except PositionMovedError:
                continue  # the home waits, if it must, before the next turn
