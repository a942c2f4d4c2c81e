"""The commit log of a log in a bucket: a change is committed by creating the next ledger entry.

    decide at the known state (after entry i) -> create entry i+1, if it does not exist
    created                             committed; no request for news was needed
    any other answer -> GET entry i+1
        its attempt id is ours          committed: a retry met the result of the first request
        another entry                   ours can never get this number: fold it and decide again
        none                            send the same number and bytes again

When the retries end, a *no-op* takes the number, so that a delayed request can't take effect. If
the store does not answer this either, the outcome is unknown: CommitUnknownError.
"""

import contextlib
import operator
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final

from sparklog.clock import Clock
from sparklog.common import TopicPartition
from sparklog.config import LogOptions, TopicConfig
from sparklog.diskless.entries import Entry, NoOpRecord, decode, encode, new_attempt_id
from sparklog.diskless.entry_building import (
    CommitContext,
    check_batches,
    check_chunks,
    check_producers,
    check_staged,
    entry_of,
)
from sparklog.diskless.entry_creation import Contention, EntryCreator, RetryPolicy
from sparklog.diskless.ledger import Head, StoreLedger
from sparklog.diskless.object_keys import check_sealed
from sparklog.diskless.placement import Placed, Placement
from sparklog.diskless.process_lock import ProcessLock
from sparklog.diskless.state import DisklessState
from sparklog.errors import (
    DataCorruptionError,
    InvalidRequestError,
    LogReplacedError,
    SparklogError,
    StorageUnavailableError,
)
from sparklog.logdir.meters import WriteMeters
from sparklog.storage.commits import Change, Chunk, DuplicateAppend, PositionMovedError
from sparklog.storage.ledger_records import (
    LedgerRecord,
    ResetRecord,
    TopicRecord,
    UndeleteRecord,
)
from sparklog.storage.log_state import LogState
from sparklog.storage.staging import INLINE_BYTES
from sparklog.tiered.keyring import Keyring
from sparklog.tiered.layout.topic_owners import PREFIX as OWNERS
from sparklog.tiered.layout.topic_owners import owner_bytes

PLACE_MS: Final = 30_000
"""A writer that commits checks this often that the log was not replaced (ms)."""
HISTORY_MS: Final = 5_000
"""A writer that commits checks this often that the entries it knows still exist (ms)."""
RACING_BYTES_MAX: Final = 4 << 10
"""A writer that lost two races stages inline data above this size: a small entry is quicker."""


class _PendingCommit(threading.local):
    """The state that a thread keeps between the attempts of a commit.

    Attributes:
        losses: The number of attempts that lost a race.
        given: The chunks of the commit.
        placement: The locations of these chunks, some of which may be staged already.
    """

    losses = 0
    given: Sequence[Chunk] = ()
    placement: Placement | None = None


class DisklessCommits:
    """A handle's changes: implements `sparklog.storage.commits.CommitLog`. Thread-safe.

    A forked child may continue to use it; it is then another writer, like any other process.
    """

    sync = True
    oldest = 0

    def __init__(
        self,
        home: str,
        head: Head,
        options: LogOptions,
        clock: Clock,
        retry_policy: RetryPolicy,
        *,
        keyring: Keyring | None = None,
        is_in_place: Callable[[], bool] = lambda: True,
        created: Callable[[Head], None] = lambda head: None,
    ) -> None:
        """Prepare the commit log of a handle, without a request.

        Args:
            home: The log's URL, for messages.
            head: The state that this handle knows.
            options: The options of the log.
            clock: The current time.
            retry_policy: The retries of requests that create entries.
            keyring: The keyring that encrypts the data written.
            is_in_place: Returns False if another log is stored at the URL.
            created: Called after each entry. Never raises.
        """
        self._created = created
        self.relieve: Callable[[Collection[TopicPartition]], None] = lambda keys: None
        self.home, self.clock, self.head = home, clock, head
        self.meters = WriteMeters([home], lambda number, failed: None)
        self.reported_gaps: set[str] = set()
        self._options, self._retry_policy, self._keyring = options, retry_policy, keyring
        self._ledger = StoreLedger(home, head)
        self._is_in_place = is_in_place
        self._looked_ms = self._followed_ms = retry_policy.timer()
        self._checked: tuple[int, str] | None = None  # the entry that was newest at the last check
        self._creator = EntryCreator(head.entries, retry_policy)
        self._contention = Contention(retry_policy)
        self._mutex = ProcessLock()
        self._turn = _PendingCommit()
        self._turn_of: int | None = None  # the thread that is within `exclusive`
        self._pinned = head.state  # the state on which decisions within `exclusive` are based
        self._lost: str | None = None
        self._closed = False

    # --- the known state ---------------------------------------------------------------------

    @property
    def known(self) -> DisklessState:
        """The entire state: the newest, or within `exclusive` the state that decisions use."""
        mine = self._turn_of == threading.get_ident()
        return self._pinned if mine else self.head.state

    @property
    def state(self) -> LogState:
        """The log state on which commit decisions are based."""
        return self.known.log

    @property
    def position(self) -> int:
        """The number of the next entry, according to the known state."""
        return self.known.next_number

    @property
    def topic_defaults(self) -> TopicConfig:
        """The configs of new topics from the log's options."""
        return self._options.topics

    @property
    def offline(self) -> Mapping[TopicPartition, DataCorruptionError]:
        """Return no partitions: a bucket has no disks that fail individually."""
        return {}

    # --- changes -----------------------------------------------------------------------------

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Exclude the other threads of this handle.

        Conflicts with other processes show in `append`.

        A writer with competitors waits here for a random time and then folds new entries. A writer
        without competitors makes no request.
        """
        if self._contention.pause(self._turn.losses):
            self._follow()
        with self._mutex:
            self.check_open()
            self._pinned, self._turn_of = self.head.state, threading.get_ident()
            try:
                yield
            finally:
                self._turn_of = None

    def check_open(self) -> None:
        """Raise LogReplacedError after `give_up`, SparklogError after `close`."""
        if self._lost is not None:
            raise LogReplacedError(self._lost)
        if self._closed:
            raise SparklogError(f"{self.home}: this log is closed; open it again")

    def catch_up(self) -> int:
        """Fold new entries; return the next number.

        Cost: a GET if there are none.

        Raises:
            LogReplacedError: The log was rolled back or replaced since this process read it.
        """
        state = self._follow()
        if self._turn_of == threading.get_ident():
            self._pinned = state
        return state.next_number

    def _follow(self) -> DisklessState:
        try:
            return self.head.follow()
        except DataCorruptionError:  # the cause may be a roll-back of the log
            self._check_history()
            raise

    def append(self, change: Change, *, expected: int) -> LedgerRecord:
        """Create the change's entry; see `CommitLog.append`.

        Cost: a PUT; for more than 256 KiB in memory, another PUT before it.

        Raises:
            WriterResetError: The writer was reset after the commit began.
            StagingExpiredError: A staged object may have been deleted.
            InvalidRequestError: The entry would be too large.
        """
        if isinstance(change.record, UndeleteRecord):
            self._check_position(expected)
            self._check_restorable(change.record)
        try:
            created = self.create(self._decided(change, expected), expected=expected)
        except PositionMovedError:
            raise  # the next attempt commits the objects that are staged already
        # The call has ended, so a later call of this thread must not reuse the staged objects.
        except BaseException:
            self._turn.given, self._turn.placement = (), None
            raise
        self._turn.given, self._turn.placement = (), None
        if isinstance(created.record, TopicRecord) and created.record.bases:
            self._own(created.record.id)
        return created.record  # type: ignore[return-value]

    def _check_restorable(self, record: UndeleteRecord) -> None:
        """Reject a new name: segments and manifests of the topic contain its original name."""
        held = self.state.deleted[record.id]
        if record.topic != held.name:
            raise InvalidRequestError(
                f"{self.home}: topic {held.name} can't be restored as {record.topic}, because the "
                "names of its objects in the bucket contain the original name. The log was not "
                f"changed; restore the topic as {held.name} before {held.until_ms} ms"
            )

    def _own(self, topic_id: str) -> None:
        """Write the topic's owner object, so that no log dir copies segments of this topic here."""
        owner = owner_bytes(self.head.entries.log_id, self.home, self.clock())
        # The topic exists by now, so a missing owner object must not make the call fail.
        with contextlib.suppress(StorageUnavailableError):
            self.head.entries.store.put(OWNERS + topic_id, owner)

    def create(self, wanted: tuple[Entry, bytes], *, expected: int) -> Entry:
        """Create an entry of any kind with inline data. Must be called within `exclusive`.

        Raises the errors of `append`.

        Returns:
            The entry as written. The known state includes the entry.
        """
        entry, data = wanted
        self._check_position(expected)
        self._check_place()
        raw = encode(expected, entry, data)
        began_ms = self._retry_policy.timer()
        if not self._creator.create(expected, entry, raw):
            self._turn.losses += 1
            if self._turn.losses > 1:  # the first conflict may only mean that the state was old
                self._contention.lost()
            self.catch_up()
            raise self._moved(expected)
        self._contention.won(expected, self._retry_policy.timer() - began_ms)
        self._turn.losses = 0
        written = decode(raw, number=expected, path=self.head.entries.path(expected))
        self._pinned = self.head.advance(expected, written)
        self._created(self.head)
        return written

    def _decided(self, change: Change, expected: int) -> tuple[Entry, bytes]:
        self._check_position(expected)
        record = change.record
        try:
            state, placed = self._pinned, self._placed(change.chunks)
            asked_at = state.next_number if change.asked_at is None else change.asked_at
            kept_commits = self._kept_commits(record) if isinstance(record, ResetRecord) else {}
            context = CommitContext(self.home, self.clock(), asked_at - 1, kept_commits)
            return entry_of(state, change, placed, context)
        # Staging has failed; a newer state would not change that.
        except StorageUnavailableError:
            raise
        except SparklogError:
            if self.catch_up() > expected:  # the rejection was based on an old state
                raise self._moved(expected) from None
            raise

    def _placed(self, chunks: Sequence[Chunk]) -> Placed:
        """Return the locations of the chunks, staging data that are too large for the entry.

        Data that were staged before a lost race are not staged again.
        """
        if not chunks:
            return Placed()
        turn = self._turn
        # The engine repeats a call with the same Chunk objects after a lost race.
        if turn.placement is None or not _are_same(turn.given, chunks):
            check_batches(chunks)
            store, log_id = self.head.entries.store, self._pinned.log_id
            turn.given = chunks
            turn.placement = Placement(
                store, log_id, chunks, keyring=self._keyring, label="driver"
            )
        check_chunks(self._pinned, chunks, home=self.home)
        limit = RACING_BYTES_MAX if turn.losses > 1 else INLINE_BYTES
        if not self.head.entries.store.replaces:  # inline data could not be removed later
            limit = 0
        placed = turn.placement.place(self._pinned.number, inline_bytes_max=limit)
        check_staged(self._pinned, placed.staged, home=self.home)
        return placed

    def _kept_commits(self, record: ResetRecord) -> dict[str, int]:
        """Return {writer: entry of its last commit that the reset does not abandon}."""
        kept = {}
        for writer, last in record.last_batches.items():
            for at, commit in self._ledger.commits_of(self.position, [writer]):
                if commit.batch <= last:  # type: ignore[union-attr]
                    kept[writer] = at
                    break
        return kept

    def _check_place(self) -> None:
        """Check periodically that this log and the newest entries are still stored at the URL.

        Otherwise commits would be acknowledged that no other process ever sees.
        Cost: a GET per PLACE_MS and two per HISTORY_MS, while there are commits.
        """
        now = self._retry_policy.timer()
        if self._checked is None:
            self._checked = self.head.state.number, self.head.state.entry_id
        with contextlib.suppress(StorageUnavailableError):  # creating the entry will fail too
            if now - self._looked_ms >= PLACE_MS:
                if not self._is_in_place():
                    self.give_up(f"{self.home} no longer contains this log: open it again")
                    self.check_open()
                self._looked_ms = now
            if now - self._followed_ms >= HISTORY_MS:
                self._check_history()
                self._followed_ms = now

    def _check_history(self) -> None:
        """Raise LogReplacedError unless the newest entry that this process knows still exists.

        This process may have created the newest entry after a roll-back. Therefore the entry that
        was the newest at the last check has to exist as well.
        Cost: two GETs.

        Raises:
            DataCorruptionError: The entry is damaged.
            StorageUnavailableError: The store does not answer, or refuses the request.
        """
        newest = self.head.state.number, self.head.state.entry_id
        for number, entry_id in dict.fromkeys((self._checked or newest, newest)):
            if number >= 0:
                self._check_entry(number, entry_id)
        self._checked = newest

    def _check_entry(self, number: int, entry_id: str) -> None:
        entry = self.head.entries.find(number)
        if entry is None or entry.id != entry_id:
            now = "is missing" if entry is None else "was replaced by another entry"
            self.give_up(
                f"{self.head.entries.path(number)} {now}, but this process has read or "
                "created the entry: the log was rolled back, emptied or replaced while it was "
                "open. This commit was not made, and earlier commits may be lost. Open the log "
                f"again. If that fails, `sparklog verify {self.home} --repair --dry-run` lists "
                "the losses"
            )
            self.check_open()

    def _check_position(self, expected: int) -> None:
        if expected != self._pinned.next_number:
            raise self._moved(expected)

    def _moved(self, expected: int) -> PositionMovedError:
        return PositionMovedError(
            f"{self.home}: the ledger ends at {self.position}, but a change was decided at "
            f"{expected}; decide the change again"
        )

    # --- chunks ------------------------------------------------------------------------------

    def check(self, chunks: Sequence[Chunk]) -> None:
        """Reject chunks of a topic that was re-created, and objects that were staged too long ago.

        Also reject unencrypted chunks if the log is encrypted.
        """
        check_sealed(self.known.keys, self._keyring, self.home)
        check_chunks(self.known, chunks, home=self.home)

    def check_producers(
        self, chunks: Sequence[Chunk]
    ) -> list[DuplicateAppend | SparklogError | None]:
        """Check idempotent producers' batches against the log's state.

        Returns a result per chunk, as `CommitLog.check_producers`.
        """
        now_ms = max(self.clock(), self.state.time_ms)
        return check_producers(self.known, chunks, now_ms, home=self.home)

    def release_staged(self, chunks: Sequence[Chunk]) -> None:
        """Keep staged objects, which belong to the log now; merge extents if there are too many."""
        self.relieve(sorted({chunk.key for chunk in chunks}))

    def make_durable(self) -> None:
        """No-op: data that a store has acknowledged are durable."""

    def placement(self, partitions: range) -> dict[int, int]:
        """Return 0 for each partition: a bucket has no log dirs."""
        return dict.fromkeys(partitions, 0)

    # --- the ledger --------------------------------------------------------------------------

    def records(self, first: int, end: int) -> Iterator[tuple[int, LedgerRecord]]:
        """Yield (position, record); see `StoreLedger`."""
        return self._ledger.records(first, end)

    def records_backwards(self, end: int) -> Iterator[tuple[int, LedgerRecord]]:
        """Yield (position, record), newest first; see `StoreLedger`."""
        return self._ledger.records_backwards(end)

    def commits_of(
        self, end: int, writers: Collection[str]
    ) -> Iterator[tuple[int, LedgerRecord]]:
        """Yield the commits of these writers; see `StoreLedger`."""
        return self._ledger.commits_of(end, writers)

    def outcome(self, position: int, attempt: str) -> LedgerRecord | None:
        """Return the record of a commit with unknown outcome, or None for a commit that has failed.

        A result of None is final. Raises the errors of `CommitLog.outcome`.
        """
        self.check_open()
        entry = self._resolved(position)
        if entry.id != attempt:
            return None
        self.head.follow()
        return entry.record  # type: ignore[return-value]

    def _resolved(self, number: int) -> Entry:
        """Return entry `number`, which will never change.

        If there is no such entry yet, a no-op takes its number, so that the answer is final.
        Cost: a GET; also a PUT if the number was free.

        Raises:
            InvalidRequestError: No commit was ever tried with this number.
            StorageUnavailableError: The store does not answer, or refuses the request.
        """
        entries = self.head.entries
        while (entry := entries.find(number)) is None:
            state = self.head.follow()
            if number > state.next_number or number < 0:
                raise InvalidRequestError(
                    f"no commit has tried to create {entries.path(number)}: the log ends at entry "
                    f"{state.number}. The commit was made in another log, or this log is an older "
                    "copy"
                )
            if number == state.next_number:
                record = NoOpRecord(time_ms=state.log.time_ms, epoch=state.log.epoch)
                noop = Entry(id=new_attempt_id(), prev=state.entry_id, record=record)
                self._creator.create(number, noop, encode(number, noop))
        return entry

    # --- the end -----------------------------------------------------------------------------

    @property
    def lost(self) -> str | None:
        """Why the log can't be used any more, or None."""
        return self._lost

    @property
    def is_closed(self) -> bool:
        """True after `close`."""
        return self._closed

    def give_up(self, why: str) -> None:
        """Make all later calls raise LogReplacedError(why)."""
        self._lost = why

    def close(self) -> None:
        """Wait for a change in progress, then reject all further changes. Idempotent."""
        with self._mutex:
            self._closed = True


def _are_same(some: Sequence[Chunk], others: Sequence[Chunk]) -> bool:
    return len(some) == len(others) and all(map(operator.is_, some, others))
