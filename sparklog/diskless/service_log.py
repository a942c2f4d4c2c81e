"""What background work asks of a log in a store: its state, its head, and a way to change it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from sparklog.clock import Clock
from sparklog.common import TopicPartition
from sparklog.diskless.commit_log import DisklessCommits
from sparklog.diskless.entries import Entry, HomeRecord, ObjectKey, new_attempt_id
from sparklog.diskless.extents import Extent
from sparklog.diskless.names import entry_name
from sparklog.diskless.state import DisklessState
from sparklog.errors import SparklogError
from sparklog.lru_cache import LruCache
from sparklog.storage.commits import PositionMovedError
from sparklog.storage.ledger_records import PurgeRecord, StartRecord
from sparklog.tiered.object_store.store import Store

_TIMES: Final = 10_000


class ConflictError(SparklogError):
    """What was to be changed isn't as it was any more: nothing was written, and nothing will be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEntry:
    """An entry that is wanted; attempt, predecessor, time and leader epoch are filled in."""

    record: HomeRecord | StartRecord | PurgeRecord
    extents: tuple[tuple[TopicPartition, Extent], ...] = ()
    keys: Mapping[str, ObjectKey] = field(default_factory=dict)


class ServiceLog:
    """A log that is open for background work. Threads may share it."""

    def __init__(self, commits: DisklessCommits) -> None:
        self.commits = commits
        self._times = LruCache[int, int](_TIMES)
        self._stored_times = LruCache[int, int](_TIMES)

    @property
    def store(self) -> Store:
        """The objects below the home."""
        return self.commits.head.entries.store

    @property
    def log_id(self) -> str:
        """The log's id, which is in the names of its entries."""
        return self.commits.head.entries.log_id

    @property
    def clock(self) -> Clock:
        """What entries are stamped by."""
        return self.commits.clock

    @property
    def state(self) -> DisklessState:
        """The log as far as this process has folded it: a picture that nobody changes."""
        return self.commits.head.state

    def follow(self) -> DisklessState:
        """Fold what is new; returns the state at the head. Cost: a GET if there is nothing new."""
        return self.commits.head.follow()

    def time_of(self, number: int) -> int:
        """Return the time (ms) of an entry below the head. Cost: a GET, once.

        Raises: DataCorruptionError, StorageUnavailableError.
        """
        found = self._times.get(number)
        if found is None:
            (entry,) = self.commits.head.entries.known([number])
            found = entry.record.time_ms
            self._times.put(number, found)
        return found

    def age_time_of(self, number: int, now_ms: int) -> int:
        """Return the time (ms) from which the age of an entry counts.

        That is the entry's time. If it is later than `now_ms`, a writer's clock was ahead, and all
        later entries have such times, too: the store's time of the object is returned instead.
        Cost: that of `time_of`; a listing of one object, once, for an entry from the future.
        """
        time_ms = self.time_of(number)
        if time_ms <= now_ms:
            return time_ms
        stored_ms = self._stored_times.get(number)
        if stored_ms is None:
            listed = self.store.list(entry_name(self.log_id, number))
            stored_ms = min((one.time_ms for one in listed), default=time_ms)
            self._stored_times.put(number, stored_ms)
        return stored_ms

    def create(self, decide: Callable[[DisklessState], NewEntry]) -> tuple[int, Entry]:
        """Create the entry that `decide` wants at the log's state; returns (its number, the entry).

        Its time is above that of every entry before it. Where another entry comes first, or
        `decide` refuses on a state that was old, it is asked again; what it raises on the newest
        one (ConflictError) says that this entry will never be.
        Raises: what `decide` raises. CommitUnknownError: nobody can tell; nothing that the entry
        names may go.
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
