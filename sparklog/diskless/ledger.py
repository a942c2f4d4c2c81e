"""The ledger of a log in a bucket: reading entries by number, and following the head.

The head is the first number without an entry. Checking it costs a GET, and a follower pays a GET
per new entry. Only a process that is far behind lists objects, to find a newer state object
(`state_objects`).
"""

import heapq
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final

from sparklog.common import TopicPartition
from sparklog.diskless.entries import (
    ENTRY_BYTES_MAX,
    Entry,
    EntryRecord,
    HomeRecord,
    decode,
    restore_advice,
)
from sparklog.diskless.entry_cache import EntryCache
from sparklog.diskless.names import entry_name
from sparklog.diskless.process_lock import ProcessLock
from sparklog.diskless.state import DisklessState
from sparklog.errors import DataCorruptionError, SparklogError
from sparklog.storage.deleted_topic import DeletedTopic
from sparklog.storage.ledger_records import CommitRecord, LedgerRecord
from sparklog.storage.log_state import LogState
from sparklog.tiered.object_store.store import Store
from sparklog.tiered.reading.store_retry import StoreRetry

WINDOW: Final = 256
"""Maximum of entries requested concurrently by a process that is behind or reads all entries."""
FIRST: Final = 16
"""Entries that are requested at first: a few have been created since the last state object."""
BEHIND: Final = 1000
"""After folding this many entries in a row, a process looks for a newer state object."""
_NO_RETRY: Final = StoreRetry()  # beyond the retries of the store's client

NewerState = Callable[[int], DisklessState | None]
"""Returns a state after an entry of at least this number, or None."""


class EntryReader:
    """Reads ledger entries by number. Thread-safe."""

    def __init__(
        self,
        store: Store,
        log_id: str | Callable[[], str],
        *,
        cache: EntryCache | None = None,
    ) -> None:
        """Prepare the reader, without a request.

        Args:
            store: The store of the log.
            log_id: The log id, or a function that finds the log id at the first use.
            cache: Caches the entries that are read.
        """
        self.store, self._log_id = store, log_id
        self.cache = EntryCache() if cache is None else cache

    @property
    def log_id(self) -> str:
        """The log id. Raises the errors of the function that finds it."""
        if not isinstance(self._log_id, str):
            self._log_id = self._log_id()
        return self._log_id

    def path(self, number: int) -> str:
        """Return the URL of an entry, for messages."""
        return f"{self.store.url}/{entry_name(self.log_id, number)}"

    def raw(self, number: int) -> bytes | None:
        """Return the bytes of an entry, or None if there is no such entry.

        If the response was cut off, these are only the first bytes.

        Raises:
            StorageUnavailableError: The store does not answer, or refuses the request.
            DataCorruptionError: The object is larger than any entry.
        """
        try:
            raw = self.store.get(entry_name(self.log_id, number), limit=ENTRY_BYTES_MAX)
        except FileNotFoundError:
            return None
        self.cache.keep(entry_name(self.log_id, number), raw)
        return raw

    def find(self, number: int) -> Entry | None:
        """Return entry `number`, or None if the ledger ends at or below this number.

        Raises:
            StorageUnavailableError: The store does not answer, or refuses the request.
            DataCorruptionError: An object is damaged.
            UnsupportedVersionError: A newer sparklog wrote the object.
        """
        raw = self.raw(number)
        return None if raw is None else self._decoded(number, raw)

    def _decoded(self, number: int, raw: bytes) -> Entry:
        """Decode an entry. If the response was cut off, request the entry again."""
        name, path = entry_name(self.log_id, number), self.path(number)
        try:
            return decode(raw, number=number, path=path)
        except DataCorruptionError:
            try:
                size = min(self.store.size(name), ENTRY_BYTES_MAX)
                whole = self.store.get(name, 0, size) if size > len(raw) else raw
            except FileNotFoundError:
                raise missing_entry(path, "a request has just returned it") from None
            if whole == raw:
                raise
            return decode(whole, number=number, path=path)

    def find_many(self, numbers: Sequence[int]) -> list[Entry | None]:
        """Return entries, requested concurrently.

        Raises the errors of `find`.
        """
        if len(numbers) == 1:
            return [self.find(numbers[0])]
        names = [entry_name(self.log_id, number) for number in numbers]
        entries: list[Entry | None] = []
        raws = self.store.get_many(names, limit=ENTRY_BYTES_MAX)
        for number, raw in zip(numbers, raws, strict=True):
            if isinstance(raw, FileNotFoundError):
                entries.append(None)
            elif isinstance(raw, Exception):
                raise raw
            else:
                self.cache.keep(entry_name(self.log_id, number), raw)
                entries.append(self._decoded(number, raw))
        return entries

    def known(self, numbers: Sequence[int]) -> list[Entry]:
        """Return entries below the head.

        Raises:
            DataCorruptionError: An entry is missing.
        """
        entries = self.find_many(numbers)
        existing = [entry for entry in entries if entry is not None]
        if len(existing) < len(entries):
            raise missing_entry(self.path(numbers[entries.index(None)]))
        return existing


def missing_entry(path: str, proof: str = "later entries exist") -> DataCorruptionError:
    """Return the error for a missing entry that was certainly created.

    Args:
        path: The URL of the missing entry.
        proof: A clause for the message: the fact that proves that the entry was created.
    """
    number = int(path.rpartition("/")[2])
    return DataCorruptionError(
        f"this ledger entry was created ({proof}) and is missing now. sparklog never deletes "
        f"ledger entries: check the bucket for lifecycle rules, and {restore_advice(path)}",
        path=path,
        first=number,
        end=number + 1,
    )


class Head:
    """The state that a process knows: the fold of all entries that it has read.

    `state` is an immutable snapshot, which is replaced by the next snapshot. Thread-safe: if
    several threads follow at the same time, one of them makes the requests.
    """

    def __init__(
        self,
        entries: EntryReader,
        *,
        newer: NewerState = lambda number: None,
        check_new: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepare the state, without a request.

        Args:
            entries: Reads the entries.
            newer: Finds a state object for a process that starts or is far behind.
            check_new: Called once if the log has no entries. Raises an error if entries were lost.
        """
        self.entries = entries
        self._state: DisklessState | None = None
        self._newer, self._check_new = newer, check_new
        self._following, self._changing = ProcessLock(), ProcessLock()
        self._followed = False
        self.folded_bytes = 0
        """Bytes of all entries that were folded here, without inline data."""

    @property
    def state(self) -> DisklessState:
        """The known state.

        Only the first access makes requests: it reads the newest state object.
        """
        if self._state is None:
            with self._changing:
                if self._state is None:
                    self._state = self._newer(0) or DisklessState(self.entries.log_id)
        return self._state

    def follow(self, retry: StoreRetry = _NO_RETRY) -> DisklessState:
        """Fold all new entries; return a state that is at least as new as this call.

        Cost: a GET if there are no new entries. Up to 256 entries are requested concurrently.

        Args:
            retry: How long to wait for an unavailable store.

        Raises:
            StorageUnavailableError: The store does not answer, or refuses the request.
            DataCorruptionError: An entry is damaged, belongs to another history, or is missing
                while a later entry exists.
            UnsupportedVersionError: Written by a newer sparklog. The entries before the faulty
                entry are folded.
        """
        with self._following:
            is_first = not self._followed
            window, folded, looked = (FIRST if is_first else 1), 0, False
            later = -1
            while True:
                if folded >= BEHIND and not looked:
                    looked = True
                    self._jump(retry)
                first, entries = self._window(window, retry)
                good = list(itertools.takewhile(lambda entry: entry is not None, entries))
                folded += len(good)
                if len(good) == len(entries):
                    window = min(2 * window, WINDOW) if folded > 1 else 1
                elif any(entries[len(good) :]):  # created between two of these requests, or lost
                    later = first + max(n for n, each in enumerate(entries) if each is not None)
                    window = 1
                # An earlier request has returned a later entry, so this entry was lost.
                elif first + len(good) < later:
                    raise missing_entry(self.entries.path(first + len(good)))
                else:
                    if is_first and self.state.number < 0:
                        retry.call(self._check_new)
                    self._followed = True
                    return self.state

    def _window(self, window: int, retry: StoreRetry) -> tuple[int, list[Entry | None]]:
        """Request the next `window` entries, and fold those before the first missing entry.

        Returns:
            (number of the first requested entry, the entries or None for each missing entry).
        """
        first = self.state.next_number
        numbers = range(first, first + window)
        entries = retry.call(lambda: self.entries.find_many(numbers))
        good = itertools.takewhile(lambda entry: entry is not None, entries)
        self._fold(first, [entry for entry in good if entry is not None])
        return first, entries

    def _jump(self, retry: StoreRetry) -> None:
        ahead = retry.call(lambda: self._newer(self.state.number + BEHIND))
        if ahead is not None:
            with self._changing:
                if self._state is None or ahead.number > self._state.number:
                    self._state = ahead

    def _fold(self, first: int, entries: Sequence[Entry]) -> None:
        known = self.state
        with self._changing:
            known = self._state or known
            done = known.number + 1 - first  # entries that a commit of this process folded
            if done >= len(entries):
                return
            state = known.copy()
            try:
                for number, entry in enumerate(entries[done:], first + done):
                    state.apply(entry, path=self.entries.path(number))
            except SparklogError:
                # `state` can't be used after the error, so the good entries are folded into new
                # copies.
                self._fold_good(known, entries[done:])
                raise
            self._state = state
            self.folded_bytes += sum(entry.data_at for entry in entries[done:])

    def _fold_good(self, known: DisklessState, entries: Sequence[Entry]) -> None:
        """Fold the first of `entries` into `known`, up to an entry that can't be applied."""
        state = known.copy()
        for entry in entries:
            try:
                state.apply(entry, path=self.entries.path(state.next_number))
            except SparklogError:
                return
            self._state = state
            state = state.copy()

    def advance(self, number: int, entry: Entry) -> DisklessState:
        """Fold an entry that this process has created as `number`; return the new state."""
        known = self.state
        with self._changing:
            known = self._state or known
            if known.number < number:
                known = known.copy()
                known.apply(entry, path=self.entries.path(number))
                self._state = known
                self.folded_bytes += entry.data_at
            return known


class StoreLedger:
    """The `sparklog.storage.commits.FollowedLedger` of a log in a bucket.

    Records that exist only in buckets (merges, terms, ...) are left out; their positions are
    skipped.
    """

    exists = True
    oldest = 0

    def __init__(self, home: str, head: Head, *, retry: StoreRetry = _NO_RETRY) -> None:
        """`home`: the URL, for messages."""
        self.home = home
        self._head, self._retry = head, retry

    def identity(self) -> object | None:
        """Return the log id."""
        return self._head.entries.log_id

    @property
    def end(self) -> int:
        """The position after the newest entry. Cost: a GET."""
        return self._head.follow(self._retry).next_number

    def records(self, first: int, end: int) -> Iterator[tuple[int, LedgerRecord]]:
        """Yield (position, record), 256 entries at a time."""
        for at in range(first, end, WINDOW):
            numbers = range(at, min(at + WINDOW, end))
            yield from _engine_records(numbers, self._known(numbers))

    def records_backwards(self, end: int) -> Iterator[tuple[int, LedgerRecord]]:
        """Yield (position, record), newest first, in requests that grow to 256 entries."""
        window = 8
        while end > 0:
            numbers = range(max(0, end - window), end)
            yield from reversed(list(_engine_records(numbers, self._known(numbers))))
            end, window = numbers[0], min(2 * window, WINDOW)

    def commits_of(self, end: int, writers: Collection[str]) -> Iterator[tuple[int, LedgerRecord]]:
        """Yield (position, record) of the writers' commits below `end`, newest first.

        Commits that a reset took back are left out. Cost: a GET per commit; commits of other
        writers are not read.
        """
        state = self._head.state
        # Each commit contains the number of the writer's previous commit. The heap merges these
        # chains of several writers, newest commit first.
        heads = [(-state.commits[w], w) for w in set(writers) if w in state.commits]
        heapq.heapify(heads)
        while heads:
            at, writer = -heads[0][0], heads[0][1]
            (entry,) = self._known([at])
            record = entry.record
            if not isinstance(record, CommitRecord) or record.writer != writer:
                raise DataCorruptionError(
                    f"the next commit of writer {writer} refers to this entry, but the entry is "
                    "not a commit of this writer; restore the object from a copy of the bucket",
                    path=self._head.entries.path(at),
                    first=at,
                    end=at + 1,
                )
            if at < end:
                yield at, record
            if entry.before < 0:
                heapq.heappop(heads)
            else:
                heapq.heapreplace(heads, (-entry.before, writer))

    def dropped(self) -> Mapping[TopicPartition, int]:
        """Return the end offsets of deleted topics' partitions. Cost: a GET."""
        return self._head.follow(self._retry).log.dropped

    def deleted(self) -> list[DeletedTopic]:
        """Return the deleted topics that can be restored. Cost: a GET."""
        return list(self._head.follow(self._retry).log.deleted.values())

    def retained(self) -> Iterator[tuple[int, LedgerRecord]]:
        """Yield (position, record) of all entries so far."""
        return self.records(0, self.end)

    def fold(self, state: LogState, end: int, *, first: int | None) -> None:
        """Fold the records [first, end) into `state`; with None, begin with the known state."""
        if first is None:
            known = self._head.state
            first = 0
            if known.next_number <= end:
                state.apply(known.log.snapshot())
                first = known.next_number
        for _, record in self.records(first, end):
            state.apply(record)

    def _known(self, numbers: Sequence[int]) -> list[Entry]:
        return self._retry.call(lambda: self._head.entries.known(numbers))


def _engine_records(
    numbers: Sequence[int], entries: Sequence[Entry]
) -> Iterator[tuple[int, LedgerRecord]]:
    for number, entry in zip(numbers, entries, strict=True):
        if not is_home_record(entry.record):
            yield number, entry.record  # type: ignore[misc]


def is_home_record(record: EntryRecord) -> bool:
    """Return True for a record of a kind that exists only in buckets."""
    return isinstance(record, HomeRecord)
