"""The interface of background work to a log in a bucket: its state, and a way to change it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from sparklog.clock import Clock
from sparklog.common import TopicPartition
from sparklog.diskless.commit_log import DisklessCommits
from sparklog.diskless.entries import (
    ENTRY_BYTES_MAX,
    Entry,
    HomeRecord,
    ObjectKey,
    decode,
    new_attempt_id,
)
from sparklog.diskless.extents import Extent
from sparklog.diskless.ledger import missing_entry
from sparklog.diskless.names import entry_name
from sparklog.diskless.state import DisklessState
from sparklog.errors import SparklogError
from sparklog.lru_cache import LruCache
from sparklog.storage.commits import PositionMovedError
from sparklog.storage.ledger_records import PurgeRecord, StartRecord
from sparklog.tiered.object_store.store import Store

_TIMES: Final = 10_000
_ENTRIES: Final = 64  # ledger entries requested concurrently


class ConflictError(SparklogError):
    """A planned change is void, because the state has changed. No entry was or will be created."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEntry:
    """The content of a ledger entry to create.

    `ServiceLog.create` fills in attempt id, predecessor, time and leader epoch.
    """

    record: HomeRecord | StartRecord | PurgeRecord
    extents: tuple[tuple[TopicPartition, Extent], ...] = ()
    keys: Mapping[str, ObjectKey] = field(default_factory=dict)


class StoredEntry(NamedTuple):
    """A ledger entry as it is stored.

    Attributes:
        number: The number of the entry.
        entry: The decoded entry.
        raw: All bytes of the object, including the inline data.
    """

    number: int
    entry: Entry
    raw: bytes

    @property
    def data(self) -> bytes:
        """The inline data; empty if there are none."""
        return self.raw[self.entry.data_at :]


class ServiceLog:
    """A log in a bucket as its background work uses it: the state, and changes by entries.

    Thread-safe.
    """

    def __init__(self, commits: DisklessCommits) -> None:
        self.commits = commits
        self._times = LruCache[int, int](_TIMES)
        self._stored_times = LruCache[int, int](_TIMES)

    @property
    def store(self) -> Store:
        """The store with the log's objects."""
        return self.commits.head.entries.store

    @property
    def log_id(self) -> str:
        """The log id, which is part of the names of the log's entries."""
        return self.commits.head.entries.log_id

    @property
    def clock(self) -> Clock:
        """The clock for timestamps of entries."""
        return self.commits.clock

    @property
    def state(self) -> DisklessState:
        """The state after the entries that this process has folded: an immutable snapshot."""
        return self.commits.head.state

    def follow(self) -> DisklessState:
        """Fold new entries; return the state at the head. Cost: a GET if there are none."""
        return self.commits.head.follow()

    def time_of(self, number: int) -> int:
        """Return the time (ms) of an entry below the head.

        Cost: a GET, once.

        Raises:
            DataCorruptionError: An object is damaged.
            StorageUnavailableError: The store does not answer, or refuses the request.
        """
        time_ms = self._times.get(number)
        if time_ms is None:
            (entry,) = self.commits.head.entries.known([number])
            time_ms = entry.record.time_ms
            self._times.put(number, time_ms)
        return time_ms

    def age_time_of(self, number: int, now_ms: int) -> int:
        """Return the time (ms) from which the age of an entry counts.

        This is the entry's time. If it is later than `now_ms`, a writer's clock was ahead, and all
        later entries have such times too: then the store's time of the object is returned.
        Cost: as `time_of`; a listing of a single object, once, for an entry from the future.
        """
        time_ms = self.time_of(number)
        if time_ms <= now_ms:
            return time_ms
        stored_ms = self._stored_times.get(number)
        if stored_ms is None:
            listed = self.store.list(entry_name(self.log_id, number))
            stored_ms = min((stored.time_ms for stored in listed), default=time_ms)
            self._stored_times.put(number, stored_ms)
        return stored_ms

    def stored_entries(self, numbers: Sequence[int]) -> Iterator[StoredEntry]:
        """Yield entries with their inline data.

        Cost: a GET per entry, 64 concurrently.

        Raises:
            DataCorruptionError: An object is damaged.
            StorageUnavailableError: The store does not answer, or refuses the request.
        """
        for at in range(0, len(numbers), _ENTRIES):
            window = numbers[at : at + _ENTRIES]
            names = [entry_name(self.log_id, number) for number in window]
            raws = self.store.get_many(names, limit=ENTRY_BYTES_MAX)
            for number, name, raw in zip(window, names, raws, strict=True):
                if isinstance(raw, FileNotFoundError):
                    raise missing_entry(f"{self.store.url}/{name}")
                if isinstance(raw, Exception):
                    raise raw
                entry = decode(raw, number=number, path=f"{self.store.url}/{name}")
                yield StoredEntry(number, entry, raw)

    def cut(self, stored: StoredEntry) -> None:
        """Remove the inline data of an entry."""
        # Overwritten by its own first bytes and not deleted, because a delayed request could create
        # an entry whose number became free.
        name = entry_name(self.log_id, stored.number)
        self.store.put(name, stored.raw[: stored.entry.data_at])

    def create(self, decide: Callable[[DisklessState], NewEntry]) -> tuple[int, Entry]:
        """Create the entry that `decide` returns for the log's state; return (number, entry).

        If another entry is created first, or `decide` raises an error on an outdated state,
        `decide` is called again. An error of `decide` on the newest state (ConflictError) is
        raised, and means that the entry will never be created.

        Raises:
            CommitUnknownError: It is unknown whether the entry was created. Objects that the entry
                refers to must not be deleted.
        """
        commits = self.commits
        while True:
            with commits.exclusive():
                number = commits.position
                try:
                    entry = self._entry(commits.known, decide(commits.known))
                except SparklogError:
                    if commits.catch_up() == number:
                        raise
                    continue
                try:
                    return number, commits.create((entry, b""), expected=number)
                except PositionMovedError:
                    continue

    def _entry(self, state: DisklessState, wanted: NewEntry) -> Entry:
        record = replace(
            wanted.record,
            # Later than all earlier entries: of two overlapping manifests the later one counts.
            time_ms=max(self.clock(), state.log.time_ms + 1),
            epoch=max(state.log.epoch, wanted.record.epoch),
        )
        return Entry(
            id=new_attempt_id(),
            prev=state.entry_id,
            seen=state.number,
            record=record,
            extents=wanted.extents,
            keys=wanted.keys,
        )
