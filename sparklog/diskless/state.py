"""The state that results from folding the ledger's entries: metadata and locations of records.

The state is a pure function of the ledger: all processes that fold the same entries have the same
state. An entry that does not follow the previous entry is damaged or belongs to another history,
and stops the fold.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from sparklog.common import TopicPartition
from sparklog.diskless.entries import (
    Entry,
    Epochs,
    FloorRecord,
    ImportRecord,
    MergeRecord,
    NoOpRecord,
    ObjectKey,
    ProducerBatch,
    TermRecord,
    restore_advice,
)
from sparklog.diskless.extents import Extent, Extents, find, index_of
from sparklog.diskless.names import entry_name
from sparklog.errors import DataCorruptionError
from sparklog.format.scan import BATCH_DTYPE, Table
from sparklog.log.producer_state import ProducerState
from sparklog.storage.lease import LeaseLostError
from sparklog.storage.ledger_records import (
    AppendRecord,
    CommitRecord,
    DropRecord,
    LedgerRecord,
    PurgeRecord,
    ResetRecord,
    StartRecord,
    TopicRecord,
    UndeleteRecord,
)
from sparklog.storage.log_state import LogState

FOLD_VERSION: Final = 3
"""Version of the fold. State objects of another version are not used."""


class _Contradiction(Exception):
    """An entry contradicts the state before the entry. The message is part of a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedParts:
    """The contents of a deleted topic's partitions; immutable.

    Attributes:
        number: The number of the entry that deleted the topic.
        gaps: Partitions in which offsets may be missing.
    """

    number: int
    extents: Mapping[int, Extents] = field(default_factory=dict)
    epochs: Mapping[int, Epochs] = field(default_factory=dict)
    producers: Mapping[int, ProducerState] = field(default_factory=dict)
    gaps: frozenset[int] = frozenset()


@dataclass(slots=True)
class DisklessState:
    """The fold of entries 0..number. Only `apply` changes it. Not thread-safe.

    Its tuples are never changed in place, so `copy` makes an independent snapshot.
    """

    log_id: str
    number: int = -1  # of the newest entry; -1: there is none yet
    entry_id: str = ""  # that entry's attempt id; of no entry the log id
    log: LogState = field(default_factory=LogState)
    extents: dict[TopicPartition, Extents] = field(default_factory=dict)
    epochs: dict[TopicPartition, Epochs] = field(default_factory=dict)
    gaps: set[TopicPartition] = field(default_factory=set)  # cleaned: offsets may be missing
    deleted: dict[str, DeletedParts] = field(default_factory=dict)  # by id: can be restored
    former: dict[str, tuple[str, int]] = field(default_factory=dict)  # purged id: name, partitions
    commits: dict[str, int] = field(default_factory=dict)  # writer: entry of its last commit
    resets: dict[str, int] = field(default_factory=dict)  # writer: entry of its last reset
    producers: dict[TopicPartition, ProducerState] = field(default_factory=dict)
    keys: dict[str, ObjectKey] = field(default_factory=dict)  # of encrypted objects
    term: int = 0
    holder: Mapping[str, object] = field(default_factory=dict)
    floor: int = 0  # objects can't be committed if their staging began below this entry
    # A list with {object: number of extents} for `_forget_keys`, or empty if not counted yet.
    # `copy` moves it to the copy, because copying it as well would cost more than it saves.
    _uses: list[dict[str, int]] = field(default_factory=list, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.entry_id = self.entry_id or self.log_id

    @property
    def next_number(self) -> int:
        """The number of the next entry, which is the end of the ledger."""
        return self.number + 1

    def kept_extents(self) -> Iterator[Extents]:
        """Yield the extents of each partition, including topics that can be restored."""
        yield from self.extents.values()
        for parts in self.deleted.values():
            yield from parts.extents.values()

    def live_objects(self) -> set[str]:
        """Return the names of all objects that extents refer to.

        For an extent in a table this is the table, without the objects in its rows.
        """
        return {extent.object for extents in self.kept_extents() for extent in extents}

    def names_by_entry(self) -> set[int]:
        """Numbers of the entries with inline data that an extent refers to."""
        prefix = entry_name(self.log_id, 0)[:-20]
        return {int(name[-20:]) for name in self.live_objects() if name.startswith(prefix)}

    def copy(self) -> "DisklessState":
        """Return a snapshot that later entries don't change. Cost: the dicts' sizes."""
        uses: list[dict[str, int]] = []
        with suppress(IndexError):
            uses.append(self._uses.pop())  # atomic: only one of two threads gets it
        log = replace(
            self.log, topics=dict(self.log.topics), ends=dict(self.log.ends),
            starts=dict(self.log.starts), local_starts=dict(self.log.local_starts),
            dropped=dict(self.log.dropped), writers=dict(self.log.writers),
            origins=dict(self.log.origins), unsynced=set(self.log.unsynced),
            idempotent=set(self.log.idempotent),
            abandoned=None if self.log.abandoned is None else dict(self.log.abandoned),
            deleted=dict(self.log.deleted),
        )  # fmt: skip
        return replace(
            self, log=log, extents=dict(self.extents), epochs=dict(self.epochs),
            gaps=set(self.gaps), deleted=dict(self.deleted), former=dict(self.former),
            commits=dict(self.commits),
            resets=dict(self.resets), keys=dict(self.keys),
            producers=dict(self.producers),
            _uses=uses,
        )  # fmt: skip

    # --- the fold ------------------------------------------------------------------------------

    def apply(self, entry: Entry, *, path: str) -> None:
        """Fold the next entry.

        Args:
            path: The URL of its object, for errors.

        Raises:
            DataCorruptionError: The entry contradicts the state, which must not be used any more.
        """
        number = self.number + 1
        if entry.prev != self.entry_id:
            raise DataCorruptionError(
                "the entry doesn't follow the entry before it: the log was rolled back while a "
                "writer had it open, or the bucket contains objects of two copies. Restore the "
                f"entire bucket from a single copy if possible. Otherwise {restore_advice(path)}",
                path=path,
                first=number,
                end=number + 1,
            )
        try:
            self._fold(number, entry)
        except (_Contradiction, KeyError) as error:
            raise DataCorruptionError(
                f"the {entry.record.kind} entry contradicts the entries before it ({error}); "
                f"{restore_advice(path)}",
                path=path,
                first=number,
                end=number + 1,
            ) from error
        self.number, self.entry_id = number, entry.id

    def _fold(self, number: int, entry: Entry) -> None:
        record = entry.record
        match record:
            case MergeRecord():
                self._merge(number, entry, record)
            case ImportRecord():
                self._import(number, entry, record)
            case TermRecord():
                _expect(record.term > self.term, "its term is not above the previous term")
                self.term, self.holder = record.term, record.holder
            case FloorRecord():
                _expect(record.term == self.term, "its term is not the log's")
                self.floor = max(self.floor, record.floor)
            case NoOpRecord():
                pass
            case _:
                self._engine(number, entry, record)
                return
        self.log.epoch = max(self.log.epoch, record.epoch)
        self.log.time_ms = max(self.log.time_ms, record.time_ms)

    def _engine(self, number: int, entry: Entry, record: LedgerRecord) -> None:
        """Fold an entry whose record is of a kind that log dirs have too."""
        if isinstance(record, AppendRecord):
            self._append(number, entry, record)
        elif isinstance(record, TopicRecord):
            _expect(
                all(base >= self.log.dropped.get(TopicPartition(record.topic, p), 0)
                    for p, base in record.bases.items()),
                "a re-created topic begins below its old end",
            )  # fmt: skip
        elif isinstance(record, DropRecord):
            self._drop(number, record)
        elif isinstance(record, UndeleteRecord):
            self._undelete(record)
        elif isinstance(record, PurgeRecord):
            self._purge(record)
        # The steps above need the ends and topics before this record, the steps below those after
        # it.
        self.log.apply(record)
        if isinstance(record, StartRecord):
            self._trim(record.starts)
        elif isinstance(record, ResetRecord):
            self._reset(number, entry, record)
        elif isinstance(record, CommitRecord):
            self.commits[record.writer] = number

    def _append(self, number: int, entry: Entry, record: AppendRecord) -> None:
        named = self._named(number, entry)
        _expect(named.keys() == record.ends.keys(), "its extents have other partitions")
        for key, (first, end) in record.ends.items():
            _expect(first == self.log.ends[key], f"{key} ends at {self.log.ends[key]}")
            _expect(_tile(named[key], first, end), f"{key}: its extents don't fill its offsets")
        self._add(named)
        for key in record.ends:
            known = self.epochs.get(key, ())
            if not known or known[-1][0] < record.epoch:
                self.epochs[key] = (*known, (record.epoch, record.ends[key].first))
        _expect(entry.producers.keys() <= named.keys(), "producers of other partitions")
        for key, batches in entry.producers.items():
            self._note_producers(key, batches, record.time_ms)

    def _named(self, number: int, entry: Entry) -> dict[TopicPartition, list[Extent]]:
        """Return the entry's extents by partition, and add the entry's data keys to the state."""
        name = entry_name(self.log_id, number)
        for each, key in entry.keys.items():
            self.keys[each or name] = key if each else key._replace(at=entry.data_at)
        sealed = self.keys.get(name)
        by_partition: dict[TopicPartition, list[Extent]] = {}
        for partition, extent in entry.extents:
            if not extent.object:  # inline
                start = extent.start if sealed else extent.start + entry.data_at
                extent = extent._replace(object=name, start=start)
            by_partition.setdefault(partition, []).append(extent._replace(born=number))
        return by_partition

    def _add(self, named: Mapping[TopicPartition, Iterable[Extent]]) -> None:
        for key, extents in named.items():
            kept = tuple(extent for extent in extents if extent.end > extent.base)
            if kept:
                self.extents[key] = (*self.extents.get(key, ()), *kept)
                self.count_uses(kept)

    def _note_producers(
        self, key: TopicPartition, batches: Iterable[ProducerBatch], time_ms: int
    ) -> None:
        known = self.producers.get(key) or ProducerState(0)
        self.producers[key] = known.with_batches(producer_table(batches), time_ms)

    def _merge(self, number: int, entry: Entry, record: MergeRecord) -> None:
        key = record.topic_partition
        _expect(record.term == self.term, "its term is not the log's")
        topic = self.log.topics.get(record.topic)
        _expect(topic is not None and topic.id == record.topic_id, "it belongs to another topic")
        before = self.extents.get(key, ())
        at = find(before, record.sources)
        _expect(at >= 0, f"the extents that it replaces don't exist in {key}")
        new = self._named(number, entry).get(key, [])
        first, end = record.sources[0][0], record.sources[-1][1]
        _expect(_tile(new, first, end), f"{key}: its extents don't fill the replaced offsets")
        self.extents[key] = (*before[:at], *new, *before[at + len(record.sources) :])
        self.count_uses(new)
        if record.gaps:
            self.gaps.add(key)
        self._forget_keys(before[at : at + len(record.sources)])

    def _import(self, number: int, entry: Entry, record: ImportRecord) -> None:
        """Fold an import record: add extents below the ends that a snapshot record has set."""
        for key, extents in self._named(number, entry).items():
            known = self.extents.get(key, ())
            first, end = (known[-1].end if known else extents[0].base), extents[-1].end
            _expect(_tile(extents, first, end), f"{key}: a gap after offset {first}")
            _expect(end <= self.log.ends[key], f"{key} ends at {self.log.ends[key]}")
            self._add({key: extents})
        _expect(record.epochs.keys() | record.gaps <= self.log.ends.keys(), "unknown partitions")
        self.epochs |= record.epochs
        self.gaps |= record.gaps
        for key, batches in entry.producers.items():
            self._note_producers(key, batches, record.time_ms)

    def _drop(self, number: int, record: DropRecord) -> None:
        partitions = self.log.topics[record.topic].dirs
        keys = {p: TopicPartition(record.topic, p) for p in partitions}
        parts = DeletedParts(
            number=number,
            extents={p: self.extents.pop(k) for p, k in keys.items() if k in self.extents},
            epochs={p: self.epochs.pop(k) for p, k in keys.items() if k in self.epochs},
            producers={p: self.producers.pop(k) for p, k in keys.items() if k in self.producers},
            gaps=frozenset(p for p, k in keys.items() if k in self.gaps),
        )
        self.gaps -= {*keys.values()}
        if record.delay_ms:
            self.deleted[record.id] = parts
        else:
            self._let_go(record.id, record.topic, len(partitions), parts)

    def _let_go(self, topic_id: str, name: str, partitions: int, parts: DeletedParts) -> None:
        self.former[topic_id] = name, partitions
        self._forget_keys([extent for extents in parts.extents.values() for extent in extents])

    def _undelete(self, record: UndeleteRecord) -> None:
        _expect(record.topic not in self.log.topics, "another topic has its name")
        _expect(record.topic == self.log.deleted[record.id].name, "its objects have another name")
        parts = self.deleted.pop(record.id)
        for p in self.log.deleted[record.id].ends:
            key = TopicPartition(record.topic, p)
            if p in parts.extents:
                self.extents[key] = parts.extents[p]
            if p in parts.epochs:
                self.epochs[key] = parts.epochs[p]
            if p in parts.producers:
                self.producers[key] = parts.producers[p]
            if p in parts.gaps:
                self.gaps.add(key)

    def _purge(self, record: PurgeRecord) -> None:
        for topic_id in record.ids:
            held = self.log.deleted[topic_id]
            self._let_go(topic_id, held.name, len(held.ends), self.deleted.pop(topic_id))

    def _trim(self, starts: Mapping[TopicPartition, int]) -> None:
        """Remove extents below the new log starts. An extent that contains a log start stays."""
        removed: list[Extent] = []
        for key, start in starts.items():
            extents = self.extents.get(key, ())
            at = index_of(extents, start)
            if at:
                self.extents[key] = extents[at:]
                removed += extents[:at]
        self._forget_keys(removed)

    def _reset(self, number: int, entry: Entry, record: ResetRecord) -> None:
        for writer in record.last_batches:
            self.resets[writer] = number
            before = entry.kept_commits.get(writer, -1)
            if before >= 0:
                self.commits[writer] = before
            else:
                self.commits.pop(writer, None)

    def count_uses(self, extents: Iterable[Extent]) -> None:
        """Add extents to the counts of extents per object, if these counts exist already."""
        for uses in self._uses:
            for extent in extents:
                uses[extent.object] = uses.get(extent.object, 0) + 1

    def _forget_keys(self, gone: Sequence[Extent]) -> None:
        """Drop the data keys of objects that no extent refers to any more.

        Cost: proportional to `gone`; a pass over all extents at the first call.

        Args:
            gone: The extents just removed.
        """
        if not self.keys:
            self._uses.clear()
            return
        if self._uses:
            left = self._uses[0]
            for extent in gone:
                left[extent.object] -= 1
        else:
            left = {}
            self._uses.append(left)
            for extents in self.kept_extents():
                self.count_uses(extents)
        for name in {extent.object for extent in gone}:
            if not left.get(name):
                left.pop(name, None)
                self.keys.pop(name, None)


def _expect(truth: bool, otherwise: str) -> None:
    if not truth:
        raise _Contradiction(otherwise)


def _tile(extents: Iterable[Extent], first: int, end: int) -> bool:
    """Return True if the extents cover [first, end) without gaps or overlaps."""
    at = first
    for extent in extents:
        if extent.base != at or extent.end < at:
            return False
        at = extent.end
    return at == end


def producer_table(batches: Iterable[ProducerBatch]) -> Table:
    """Return the batches as a table for `ProducerState`."""
    rows = list(batches)
    table = np.zeros(len(rows), BATCH_DTYPE)
    for at, row in enumerate(rows):
        table[at]["producer_id"], table[at]["producer_epoch"] = row.producer_id, row.epoch
        table[at]["base_sequence"] = row.base_sequence
        table[at]["base_offset"], table[at]["last_offset"] = row.base_offset, row.last_offset
        table[at]["max_timestamp"] = row.max_timestamp
    return table


def partitions_of(state: DisklessState) -> Iterator[TopicPartition]:
    """Yield all partitions of all topics, sorted."""
    for name, topic in sorted(state.log.topics.items()):
        for partition in sorted(topic.dirs):
            yield TopicPartition(name, partition)


def term_lost(state: DisklessState, term: int) -> LeaseLostError:
    """Return the error for a change of a service whose `term` is not the log's term any more."""
    return LeaseLostError(
        f"another service has taken over the log: its term is {state.term}, and this service had "
        f"term {term}"
    )
