"""Repairs a log after the loss of its newest ledger entries, and reports the losses.

The repaired ledger ends at the last readable entry. The numbers of lost entries are filled with
no-ops, because a number is never used twice. An object that has such a number is copied to the
quarantine first. A new term fences the services of the lost entries, and a writer that still knows
the lost entries meets the entry that begins the new term. Objects that belong to lost entries only
(states, segments, manifests) are moved to the quarantine. A second call completes an interrupted
repair.
"""

import contextlib
import json
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from sparklog.clock import Clock, iso
from sparklog.common import TopicPartition
from sparklog.diskless.entries import (
    ENTRY_BYTES_MAX,
    Entry,
    NoOpRecord,
    TermRecord,
    decode,
    encode,
    new_attempt_id,
)
from sparklog.diskless.groups import GroupObjects
from sparklog.diskless.ledger import EntryReader, Head
from sparklog.diskless.ledger_evidence import Evidence, evidence_beyond
from sparklog.diskless.names import entry_name, ledger_prefix, parse_state, service_name
from sparklog.diskless.quarantine import Quarantine
from sparklog.diskless.state import DisklessState
from sparklog.diskless.state_objects import (
    STATE_BYTES_MAX,
    StateObjects,
    decode_state,
    proves_entry,
)
from sparklog.errors import DataCorruptionError, SparklogError, StorageUnavailableError
from sparklog.pluralize import pluralize
from sparklog.storage.group_store import Groups
from sparklog.storage.ledger_records import AppendRecord, CommitRecord, DropRecord, TopicRecord
from sparklog.tiered.object_store.store import Store

FILLED_MAX: Final = 10_000
"""A number that is further ahead is not filled: its object is only moved to the quarantine."""
_SHOWN_MAX: Final = 1000
_TERM_TRIES: Final = 20


@dataclass(slots=True)
class LostEntries:
    """Entries that were created after the last readable `state`, and are lost.

    Attributes:
        end: The number after the last lost entry.
        proof: A clause that says how the loss is known.
        losses: The lost data, a clause each.
        objects: The objects to move away.
        term: The newest term of a service.
    """

    state: DisklessState
    end: int
    proof: str
    losses: list[str] = field(default_factory=list)
    objects: list[str] = field(default_factory=list)
    term: int = 0

    @property
    def first(self) -> int:
        """The number of the first lost entry."""
        return self.state.next_number


def find_lost_entries(store: Store, log_id: str, names: Iterable[str]) -> LostEntries | None:
    """Return the entries that are lost at the end of the ledger, or None.

    Cost: as opening the log, and a GET per object that may describe the lost entries.

    Args:
        names: All objects of the log, listed just before. Objects that were deleted since then are
            ignored.

    Raises:
        UnsupportedVersionError: A newer sparklog wrote an entry.
        StorageUnavailableError: The store does not answer, or refuses the request.
    """
    states = StateObjects(store, lambda: log_id)
    head = Head(
        EntryReader(store, log_id), newer=lambda least: states.newest(least, is_strict=False)
    )
    why = None
    try:
        state = head.follow()
    except DataCorruptionError as error:
        state, why = _last_readable(head), str(error)
    evidence, known = [], list[DisklessState]()
    for each in evidence_beyond(state, names):
        if parse_state(log_id, each.name) is not None and each.number is not None:
            try:
                raw = store.get(each.name, limit=STATE_BYTES_MAX)
            except (DataCorruptionError, FileNotFoundError):  # too large for a state, or deleted
                continue
            if not proves_entry(raw, log_id=log_id, number=each.number):
                continue
            with contextlib.suppress(SparklogError):
                known.append(decode_state(raw, path=""))
        evidence.append(each)
    if not evidence and why is None:
        return None
    numbers = [each.number for each in evidence if each.number is not None]
    numbers = [n for n in numbers if n <= state.number + FILLED_MAX]
    numbers += [state.number] if why is None else [state.number + 1]
    proof = why or f"{store.url}/{evidence[0].name} proves that {evidence[0].what}"
    lost = LostEntries(state, max(numbers) + 1, proof)
    _Losses(store, lost, evidence, known).fill()
    return lost


def _last_readable(head: Head) -> DisklessState:
    """Fold entries in order up to the first entry that can't be applied."""
    with contextlib.suppress(DataCorruptionError):
        while (entry := head.entries.find(head.state.next_number)) is not None:
            head.advance(head.state.next_number, entry)
    return head.state


class _Losses:
    """Collects the contents of the lost entries from the remaining objects."""

    def __init__(
        self,
        store: Store,
        lost: LostEntries,
        evidence: Sequence[Evidence],
        states: Sequence[DisklessState],
    ) -> None:
        self._store, self._lost = store, lost
        self._evidence, self._states = evidence, states
        self._ends: dict[TopicPartition, int] = {}
        self._batches: dict[str, set[int]] = defaultdict(set)
        self._topics: dict[str, str] = {}
        self._entries: list[str] = []

    def fill(self) -> None:
        """Fill in `losses`, `objects` and `term`."""
        lost, state = self._lost, self._lost.state
        entries = self._readable_entries()
        for number, entry in entries:
            self._take(number, entry)
        for each in self._evidence:
            lost.term = max(lost.term, each.term)
            if each.key is not None:
                self._reach(each.key, each.end)
            is_entry = each.name.startswith(ledger_prefix(state.log_id))
            if (
                each.key is not None
                or parse_state(state.log_id, each.name) is not None
                or (is_entry and (each.number or 0) >= lost.end)
            ):
                lost.objects.append(each.name)
        for known in self._states:
            self._compare(known)
        count = lost.end - lost.first
        if count:
            what = f"ledger entries {lost.first} to {lost.end - 1}"
            lost.losses.append(f"{what} ({count}, of which {len(entries)} can be read)")
        lost.losses += [f"{key}: offsets [{state.log.ends.get(key, 0)}, {end})"
                        for key, end in sorted(self._ends.items())]  # fmt: skip
        lost.losses += [f"topic {name}: {what}" for name, what in sorted(self._topics.items())]
        for writer, batches in sorted(self._batches.items()):
            lost.losses.append(f"writer {writer}: micro-batches {_ranges(batches)}")
        lost.losses += self._entries
        lost.losses += self._groups()

    def _readable_entries(self) -> list[tuple[int, Entry]]:
        """Return the lost entries that can still be read from their objects."""
        log_id, readable = self._lost.state.log_id, []
        names = {
            each.number: each.name
            for each in self._evidence
            if each.number is not None and each.name == entry_name(log_id, each.number)
        }
        numbers = sorted(names)[:_SHOWN_MAX]
        raws = self._store.get_many(
            [names[number] for number in numbers], limit=ENTRY_BYTES_MAX
        )
        for number, raw in zip(numbers, raws, strict=True):
            if isinstance(raw, StorageUnavailableError):
                raise raw  # it may be readable
            try:
                if isinstance(raw, bytes):
                    readable.append((number, decode(raw, number=number, path=names[number])))
            except SparklogError:
                continue
        return readable

    def _take(self, number: int, entry: Entry) -> None:
        record = entry.record
        what = f"entry {number} ({record.kind}, {iso(record.time_ms)})"
        if isinstance(record, AppendRecord):
            for key, ends in record.ends.items():
                self._reach(key, ends.end)
            if isinstance(record, CommitRecord):
                self._batches[record.writer].add(record.batch)
                what += f", micro-batch {record.batch} of writer {record.writer}"
            where = ", ".join(f"{key} [{r.first}, {r.end})" for key, r in record.ends.items())
            what += f": {where}"
        elif isinstance(record, TopicRecord):
            self._topics[record.topic] = "it was created or altered"
        elif isinstance(record, DropRecord):
            self._topics[record.topic] = "it was deleted"
        elif isinstance(record, TermRecord):
            self._lost.term = max(self._lost.term, record.term)
        self._entries.append(what)

    def _compare(self, known: DisklessState) -> None:
        """Add the losses that a state object shows, which was written after lost entries."""
        before = self._lost.state.log
        self._lost.term = max(self._lost.term, known.term)
        for key, end in known.log.ends.items():
            self._reach(key, end)
        for name, topic in known.log.topics.items():
            if before.topics.get(name) != topic:
                self._topics[name] = "it was created or altered"
        for name in before.topics.keys() - known.log.topics.keys():
            self._topics[name] = "it was deleted"
        for writer, last in known.log.writers.items():
            mine = before.writers.get(writer)
            if mine is None or mine.batch < last.batch:
                first = last.batch if mine is None else mine.batch + 1
                first = max(first, last.batch - _SHOWN_MAX)
                self._batches[writer] |= {*range(first, last.batch + 1)}

    def _reach(self, key: TopicPartition, end: int) -> None:
        if end > max(self._lost.state.log.ends.get(key, 0), self._ends.get(key, 0)):
            self._ends[key] = end

    def _groups(self) -> Iterator[str]:
        """Yield descriptions of groups with a position above the new end of a partition."""
        ends = self._lost.state.log.ends
        for reader in Groups(GroupObjects(self._store)).readers().groups:
            for key, at in sorted(reader.offsets.items()):
                end = ends.get(key, 0)
                if at.offset > end:
                    what = f"offset {at.offset} of {key} is above its end {end}"
                    yield f"group {reader.group}: {what}"


def _ranges(numbers: Iterable[int]) -> str:
    """Return numbers as text: 1 to 3, 7."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(str(a) if a == b else f"{a} to {b}" for a, b in spans)


# -- giving up


def give_up_lost_entries(
    store: Store, log_id: str, clock: Clock, quarantine: Quarantine
) -> list[str]:
    """End the ledger at the last readable entry; return a clause for each change.

    All writers and services must be stopped. A running writer raises LogReplacedError when it
    reads the new entries, or when it looks for the newest entry that it knows.
    Raises the errors of `find_lost_entries`.
    """
    lost = find_lost_entries(store, log_id, [stored.name for stored in store.list()])
    if lost is None:
        return []
    state, done = lost.state.copy(), [f"lost: {what}" for what in lost.losses]
    for number in range(lost.first, lost.end):
        name = entry_name(log_id, number)
        record = NoOpRecord(time_ms=state.log.time_ms, epoch=state.log.epoch)
        raw = encode(number, Entry(id=new_attempt_id(), prev=state.entry_id, record=record))
        if quarantine.keep(name) is not None:
            store.put(name, raw)
        # A delayed request for the lost entry may take its number first. Then its entry counts.
        elif not store.create(name, raw):
            raw = store.get(name, limit=ENTRY_BYTES_MAX)
        state.apply(decode(raw, number=number, path=name), path=f"{store.url}/{name}")
    _take_term(store, state, max(state.term, lost.term) + 1, clock)
    quarantine.remove(lost.objects)
    kept = [stored.name for stored in store.list(quarantine.prefix)]
    if kept:
        done.append(f"{pluralize(len(kept), 'object')} copied to {store.url}/{quarantine.prefix}")
    return done


def _take_term(store: Store, state: DisklessState, term: int, clock: Clock) -> None:
    """Begin a term that no lost entry has, and release the term for the next service."""
    head = Head(EntryReader(store, state.log_id), newer=lambda least: state)
    for _ in range(_TERM_TRIES):
        now = head.follow()
        if now.term >= term:
            return
        record = TermRecord(
            term=term, time_ms=max(clock(), now.log.time_ms), epoch=now.log.epoch, holder={}
        )
        entry = Entry(id=new_attempt_id(), prev=now.entry_id, record=record)
        name = entry_name(state.log_id, now.next_number)
        if store.create(name, encode(now.next_number, entry)):
            # The next service can begin at once, instead of waiting for an expired heartbeat.
            sign = {"beat": uuid.uuid4().hex, "released": True, "time_ms": clock()}
            store.put(service_name(term), json.dumps(sign).encode())
            return
