"""Checks the ledger of a log in a store, entry by entry, and the states that it folds to."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from sparklog.diskless.entries import Entry, decode, key_to_json
from sparklog.diskless.names import entry_name, parse_state, state_name, state_prefix
from sparklog.diskless.state import DisklessState
from sparklog.diskless.state_objects import decode_state
from sparklog.errors import DataCorruptionError, SparklogError, UnsupportedVersionError
from sparklog.service.verification.findings import Findings, FixKind, Severity
from sparklog.storage import ledger_records
from sparklog.tiered.object_store.store import Store
from sparklog.tiered.reading.store_retry import StoreRetry

WINDOW: Final = 64
"""Entries that are asked for at the same time; each may have 256 KiB of inline data, or more."""
STATES: Final = 4  # the newest ones are compared; the service keeps two
_COPY: Final = "restore the object from a copy of the bucket"


@dataclass(frozen=True, slots=True)
class _Stored:
    """A state's object, and what is in it; its number is the entry's that it names itself."""

    path: str
    state: DisklessState


class LedgerCheck:
    """Reads all entries, in windows, and folds them. Not thread-safe.

    `state` is the newest fold that is good: where an entry is missing or damaged, from the next
    state on that a reader could begin with, if there is one.
    """

    def __init__(self, store: Store, log_id: str, retry: StoreRetry, out: Findings) -> None:
        self.state = DisklessState(log_id)
        self._store, self._log_id, self._retry, self._out = store, log_id, retry, out
        self._states: dict[int, _Stored] = {}
        self._next, self._is_whole = 0, True
        self._kept, self._since = self.state.copy(), list[tuple[Entry, str]]()  # of this window
        self._before: str | None = log_id  # the id of the entry before `_next`; None: not known

    def run(self) -> DisklessState:
        """Check all that is there by now; called again it goes on from there."""
        if not self._next:
            self._read_states()
        least = max([self._listed(), *self._states], default=-1)
        while True:
            numbers = range(self._next, self._next + WINDOW)
            found = self._entries(numbers)
            self._kept, self._since = self.state.copy(), []
            for number, raw in zip(numbers, found, strict=True):
                if raw is None and number > least:
                    return self.state  # the head, by now
                if raw is None:
                    # created between the requests of this window?
                    raw = self._entries([number])[0]
                self._take(number, raw)
                self._next = number + 1

    # --- entries --------------------------------------------------------------------------------

    def _listed(self) -> int:
        """The newest entry that a listing knows; whatever is below it was there before."""
        prefix = entry_name(self._log_id, 0)[:-20]
        behind = entry_name(self._log_id, max(self._next - 1, 0))
        names = [one.name for one in self._retry.call(lambda: self._store.list(prefix, behind))]
        numbers = [int(n[-20:]) for n in names if n[len(prefix) :].isdigit()]
        return max(numbers, default=-1)

    def _entries(self, numbers: Sequence[int]) -> list[bytes | None]:
        names = [entry_name(self._log_id, number) for number in numbers]

        def ask() -> list[bytes | None]:
            found: list[bytes | None] = []
            for raw in self._store.get_many(names):
                if isinstance(raw, Exception) and not isinstance(raw, FileNotFoundError):
                    raise raw
                found.append(None if isinstance(raw, Exception) else raw)
            return found

        return self._retry.call(ask)

    def _take(self, number: int, raw: bytes | None) -> None:
        path = f"{self._store.url}/{entry_name(self._log_id, number)}"
        entry = self._decoded(number, raw, path)
        if entry is not None:
            self._fold(number, entry, path)
        else:
            self._is_whole = False
        self._before = None if entry is None else entry.id

    def _decoded(self, number: int, raw: bytes | None, path: str) -> Entry | None:
        if raw is None:
            what = f"an entry of the ledger is gone, though nothing ever deletes one; {_COPY}"
            self._damage(path, what, number)
            return None
        try:
            return decode(raw, number=number, path=path)
        except DataCorruptionError as error:
            self._damage(path, error.reason, number, error.position)
        except UnsupportedVersionError as error:
            self._damage(path, str(error), number)
        return None

    def _fold(self, number: int, entry: Entry, path: str) -> None:
        if self._is_whole:
            try:
                self.state.apply(entry, path=path)
                self._since.append((entry, path))
            except DataCorruptionError as error:
                self._damage(path, error.reason, number)
                self.state, self._is_whole = self._refolded(), False
        elif self._before is not None and entry.prev != self._before:
            self._damage(path, f"it doesn't follow the entry before it; {_COPY}", number)
        stored = self._states.pop(number, None)
        if stored is None:
            return
        if stored.state.entry_id != entry.id or stored.state.log_id != self._log_id:
            self._lies(stored.path, "it is of another history of the log")
        elif self._is_whole:
            self._compare(stored)
        else:  # where a reader begins
            self.state, self._is_whole = stored.state, True
            self._kept, self._since = self.state.copy(), []

    def _refolded(self) -> DisklessState:
        """The state before the entry that didn't fit, which may have left it half folded."""
        state = self._kept
        for entry, path in self._since:
            state.apply(entry, path=path)
        return state

    def _damage(self, path: str, what: str, number: int, position: int | None = None) -> None:
        self._out.add(Severity.DAMAGE, path, what, position=position, first=number, end=number + 1)

    # --- states ---------------------------------------------------------------------------------

    def _read_states(self) -> None:
        prefix = state_prefix(self._log_id)
        listed = self._retry.call(lambda: self._store.list(prefix))
        places = [parse_state(self._log_id, one.name) for one in listed]
        numbers = sorted({place for place in places if place is not None})[-STATES:]
        for number in numbers:
            name = state_name(self._log_id, number)
            path = f"{self._store.url}/{name}"
            try:
                raw = self._retry.call(partial(self._store.get, name))
                state = decode_state(raw, path=path)
            except FileNotFoundError:
                continue  # an older one, deleted since
            except DataCorruptionError as error:
                self._lies(path, error.reason)
            except SparklogError as error:
                if not isinstance(error, UnsupportedVersionError):
                    raise
                self._out.add(Severity.WARNING, path, f"{error}; it is passed over")
            else:
                if state.number == number:
                    self._states[number] = _Stored(path, state)
                else:
                    self._lies(path, f"it is the state after entry {state.number}")

    def _compare(self, stored: _Stored) -> None:
        for what, first, end in _differences(stored.state, self.state):
            self._lies(stored.path, f"{what} is not what the ledger folds to", first, end)

    def _lies(self, path: str, what: str, first: int | None = None, end: int | None = None) -> None:
        self._out.add(Severity.DIFFERENCE, path, what, first=first, end=end, fix=FixKind.STATE)


def _differences(
    stored: DisklessState, folded: DisklessState
) -> Iterator[tuple[str, int | None, int | None]]:
    """(what of a state differs, first offset, end offset): of a partition's extents with those."""
    for key in sorted(stored.extents.keys() | folded.extents.keys()):
        ours, theirs = folded.extents.get(key, ()), stored.extents.get(key, ())
        if ours != theirs:
            odd = set(ours) ^ set(theirs)
            first = min((extent.base for extent in odd), default=None)
            end = max((extent.end for extent in odd), default=None)
            yield f"where {key}'s records lie", first, end
    ours_too, theirs_too = _content(folded), _content(stored)
    for name, value in ours_too.items():
        if theirs_too[name] != value:
            yield name, None, None


def _content(state: DisklessState) -> dict[str, Any]:
    """All of a state but the extents, each under a name for people."""
    return {
        "metadata (topics, ends, starts, writers)": ledger_records.encode(state.log.snapshot()),
        "leader epochs": state.epochs,
        "partitions with gaps": state.gaps,
        "former topics": state.former,
        "writers' commits": state.commits,
        "writers' resets": state.resets,
        "producers": {key: one.to_json() for key, one in state.producers.items()},
        "data keys": {name: key_to_json(key) for name, key in state.keys.items()},
        "the service's term": (state.term, dict(state.holder)),
        "the stage floor": state.floor,
    }
