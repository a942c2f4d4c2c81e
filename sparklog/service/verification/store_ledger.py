"""Checks the entries of a log in a bucket, and the state objects that they fold to."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from sparklog.diskless.entries import ENTRY_BYTES_MAX, Entry, decode, key_to_json
from sparklog.diskless.ledger_evidence import entry_number_of
from sparklog.diskless.names import (
    entry_name,
    ledger_prefix,
    parse_state,
    state_name,
    state_prefix,
)
from sparklog.diskless.state import DisklessState
from sparklog.diskless.state_objects import STATE_BYTES_MAX, decode_state, proves_entry
from sparklog.errors import DataCorruptionError, SparklogError, UnsupportedVersionError
from sparklog.service.verification.findings import Findings, FixKind, Severity
from sparklog.storage import ledger_records
from sparklog.tiered.object_store.store import Store
from sparklog.tiered.reading.store_retry import StoreRetry

WINDOW: Final = 64
"""Entries that are read at the same time; each may have 256 KiB of inline data, or more."""
STATES: Final = 4  # compare so many of the newest states; the service preserves two
_COPY: Final = "restore the object from a copy of the bucket"


@dataclass(frozen=True, slots=True)
class _Stored:
    """A state object and its content. Its number is the number of the entry that it belongs to."""

    path: str
    state: DisklessState


class LedgerCheck:
    """Reads all entries, in windows, and folds them. Not thread-safe.

    `state` is the newest good fold. After a missing or damaged entry it continues from the next
    stored state from which a reader could start, if any.
    """

    def __init__(self, store: Store, log_id: str, retry: StoreRetry, out: Findings) -> None:
        self.state = DisklessState(log_id)
        self._store, self._log_id, self._retry, self._out = store, log_id, retry, out
        self._states: dict[int, _Stored] = {}
        self._next = 0
        self.is_whole = True  # whether `state` is the fold up to the head
        self._kept, self._since = self.state.copy(), list[tuple[Entry, str]]()  # of this window
        self._before: str | None = log_id  # the id of the entry before `_next`, if known
        self.names: list[str] | None = None  # all objects, as listed before the head was read
        self._evidence: dict[int, str] = {}  # {entry: the URL of an object that proves it}

    def run(self) -> DisklessState:
        """Check all entries that exist by now; a further call continues from there."""
        if not self._next:
            self._read_states()
        proven = self._proven()
        while True:
            numbers = range(self._next, self._next + WINDOW)
            found = self._entries(numbers)
            proven |= {n for n, raw in zip(numbers, found, strict=True) if raw is not None}
            self._kept, self._since = self.state.copy(), []
            for number, raw in zip(numbers, found, strict=True):
                if raw is None and number > max(proven, default=-1):
                    return self.state  # the head of the ledger
                if raw is None:
                    # created between the requests of this window?
                    raw = self._entries([number])[0]
                if raw is None:
                    self._skip(number, min(n for n in proven if n >= number))
                    break
                self._take(number, raw)
                self._next = number + 1

    def _skip(self, first: int, proven: int) -> None:
        """Report the entries from `first` to the next existing entry as lost, and continue there.

        `proven` is the next number for which an object shows that the entry was created.
        """
        is_there = self._entries([proven])[0] is not None
        end = proven if is_there else proven + 1
        path = f"{self._store.url}/{entry_name(self._log_id, first)}"
        is_one = end == first + 1
        which = f"entry {first} is" if is_one else f"entries {first} to {end - 1} are"
        what = f"ledger {which} missing, but existed once"
        by = self._evidence.get(proven)
        by = f" ({by} proves it)" if by is not None and not is_there else ""
        self._out.add(Severity.DAMAGE, path, f"{what}{by}; {_COPY}", first=first, end=end)
        self.is_whole, self._before, self._next = False, None, end
        for number in [n for n in self._states if n < end]:
            del self._states[number]

    # --- entries --------------------------------------------------------------------------------

    def _proven(self) -> set[int]:
        """Return the numbers for which an object shows that their entry was created.

        The first call lists all objects of the log, later calls the new entries.
        """
        prefix = ledger_prefix(self._log_id)
        if self.names is None:
            self.names = [one.name for one in self._retry.call(self._store.list)]
            names = self.names
            for name in names:
                number = entry_number_of(self._log_id, name)
                if number is not None and parse_state(self._log_id, name) is None:
                    self._evidence.setdefault(number, f"{self._store.url}/{name}")
        else:
            behind = entry_name(self._log_id, max(self._next - 1, 0))
            listed = self._retry.call(lambda: self._store.list(prefix, behind))
            names = [one.name for one in listed]
        found = {entry_number_of(self._log_id, n) for n in names if n.startswith(prefix)}
        numbers = {n for n in found if n is not None} | self._evidence.keys() | self._states.keys()
        return {n for n in numbers if n >= self._next}

    def _entries(self, numbers: Sequence[int]) -> list[bytes | DataCorruptionError | None]:
        """Return the entries' bytes.

        Missing entries are None, entries that are too large are errors.
        """
        names = [entry_name(self._log_id, number) for number in numbers]

        def ask() -> list[bytes | DataCorruptionError | None]:
            found: list[bytes | DataCorruptionError | None] = []
            for raw in self._store.get_many(names, limit=ENTRY_BYTES_MAX):
                if isinstance(raw, bytes | DataCorruptionError):
                    found.append(raw)
                elif isinstance(raw, FileNotFoundError):
                    found.append(None)
                else:
                    raise raw
            return found

        return self._retry.call(ask)

    def _take(self, number: int, raw: bytes | DataCorruptionError) -> None:
        path = f"{self._store.url}/{entry_name(self._log_id, number)}"
        entry = self._decoded(number, raw, path)
        if entry is not None:
            self._fold(number, entry, path)
        else:
            self.is_whole = False
        self._before = None if entry is None else entry.id

    def _decoded(self, number: int, raw: bytes | DataCorruptionError, path: str) -> Entry | None:
        try:
            if isinstance(raw, DataCorruptionError):
                raise raw
            return decode(raw, number=number, path=path)
        except DataCorruptionError as error:
            self._damage(path, error.reason, number, error.position)
        except UnsupportedVersionError as error:
            self._damage(path, str(error), number)
        return None

    def _fold(self, number: int, entry: Entry, path: str) -> None:
        if self.is_whole:
            try:
                self.state.apply(entry, path=path)
                self._since.append((entry, path))
            except DataCorruptionError as error:
                self._damage(path, error.reason, number)
                # The entry may have been applied partially: apply the entries before it again.
                self.state, self.is_whole = self._kept, False
                for applied, applied_path in self._since:
                    self.state.apply(applied, path=applied_path)
        elif self._before is not None and entry.prev != self._before:
            self._damage(path, f"the entry doesn't follow the one before it; {_COPY}", number)
        stored = self._states.pop(number, None)
        if stored is None:
            return
        if stored.state.entry_id != entry.id or stored.state.log_id != self._log_id:
            self._report_state(stored.path, "the state is of another history of the log")
        elif self.is_whole:
            self._compare(stored)
        else:  # a reader could start from this state
            self.state, self.is_whole = stored.state, True
            self._kept, self._since = self.state.copy(), []

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
                raw = self._retry.call(partial(self._store.get, name, limit=STATE_BYTES_MAX))
                if proves_entry(raw, log_id=self._log_id, number=number):
                    self._evidence[number] = path
                state = decode_state(raw, path=path)
            except FileNotFoundError:
                continue  # an old state, deleted since the listing
            except DataCorruptionError as error:
                self._report_state(path, error.reason)
            except SparklogError as error:
                if not isinstance(error, UnsupportedVersionError):
                    raise
                self._out.add(Severity.WARNING, path, f"{error}; the state was not compared")
            else:
                if state.number == number:
                    self._states[number] = _Stored(path, state)
                else:
                    self._report_state(path, f"the object has the state after entry {state.number}")

    def _compare(self, stored: _Stored) -> None:
        for what, first, end in _differences(stored.state, self.state):
            self._report_state(stored.path, f"{what} differs from the ledger", first, end)

    def _report_state(
        self, path: str, what: str, first: int | None = None, end: int | None = None
    ) -> None:
        self._out.add(Severity.DIFFERENCE, path, what, first=first, end=end, fix=FixKind.STATE)


def _differences(
    stored: DisklessState, folded: DisklessState
) -> Iterator[tuple[str, int | None, int | None]]:
    """Yield (what differs, first offset, end offset); the offsets only for extents."""
    for key in sorted(stored.extents.keys() | folded.extents.keys()):
        ours, theirs = folded.extents.get(key, ()), stored.extents.get(key, ())
        if len(ours) == len(theirs):  # an older version writes states without checksums
            pairs = zip(ours, theirs, strict=True)
            theirs = tuple(e._replace(crc=our.crc) if e.crc < 0 else e for our, e in pairs)
        if ours != theirs:
            odd = set(ours) ^ set(theirs)
            first = min((extent.base for extent in odd), default=None)
            end = max((extent.end for extent in odd), default=None)
            yield f"the list of {key}'s extents", first, end
    ours_too, theirs_too = _content(folded), _content(stored)
    for name, value in ours_too.items():
        if theirs_too[name] != value:
            yield name, None, None


def _content(state: DisklessState) -> dict[str, Any]:
    """Return {description: part of the state}, without extents, to compare two states."""
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
