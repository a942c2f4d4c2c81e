"""The judge: folds what lands in the bucket, by its own rules, and looks at every promise.

It shares the form of entries with the code under test and nothing else: the fold, the batches and
the choice between manifests are its own, and as plain as can be. One topic of two partitions.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from crc32c import crc32c

from sparklog.common import TopicPartition
from sparklog.diskless import entries
from sparklog.diskless.entries import Entry, FloorRecord, MergeRecord, NoOpRecord, TermRecord
from sparklog.diskless.extents import Extent
from sparklog.diskless.state import DisklessState
from sparklog.errors import DataCorruptionError
from sparklog.storage.ledger_records import (
    AppendRecord,
    CommitRecord,
    DropRecord,
    PurgeRecord,
    ResetRecord,
    StartRecord,
    TopicRecord,
    UndeleteRecord,
)
from sparklog.testing.scheduled_store import Effect, ScheduledBucket
from sparklog.tiered.layout.object_names import parse_directory, parse_log, parse_manifest

TOPIC: Final = "t"
PARTITIONS: Final = (0, 1)
Digest = tuple[Any, ...]


class Violation(AssertionError):
    """A promise of the log was broken."""


def need(truth: object, otherwise: str) -> None:
    if not truth:
        raise Violation(otherwise)


@dataclass(frozen=True, slots=True)
class Call:
    """A commit as it was planned: the topic's id, the rows of each partition, the newest entry."""

    id: str
    topic_id: str
    rows: Mapping[int, list[bytes]]
    head: int
    batch: tuple[str, int, str] | None


@dataclass(frozen=True, slots=True)
class Deleted:
    """A topic that was deleted when the store's clock said `at_ms`; it can be had back."""

    starts: list[int]
    ends: list[int]
    extents: list[list[Extent]]
    at_ms: int
    delay_ms: int


@dataclass(slots=True)
class Truth:
    """What the ledger says, folded."""

    number: int = -1
    id: str = ""
    topic_id: str = ""  # "": it was dropped, or never made
    starts: list[int] = field(default_factory=lambda: [0, 0])
    ends: list[int] = field(default_factory=lambda: [0, 0])
    extents: list[list[Extent]] = field(default_factory=lambda: [[], []])
    writers: dict[str, tuple[int, str]] = field(default_factory=dict)
    resets: dict[str, int] = field(default_factory=dict)
    term: int = 0
    floor: int = 0
    deleted: dict[str, Deleted] = field(default_factory=dict)

    def digest(self) -> Digest:
        places = tuple(tuple(x.place for x in each) for each in self.extents)
        return (
            self.number, self.id, self.topic_id, tuple(self.starts), tuple(self.ends), places,
            dict(self.writers), dict(self.resets), self.term, self.floor,
            {
                id: tuple(tuple(x.place for x in each) for each in one.extents)
                for id, one in self.deleted.items()
            },
        )  # fmt: skip


def digest_of(state: DisklessState) -> Digest:
    """What the code under test has folded, in the oracle's form."""
    topic, keys = state.log.topics.get(TOPIC), [TopicPartition(TOPIC, p) for p in PARTITIONS]
    ends = tuple(state.log.ends.get(key, state.log.dropped.get(key, 0)) for key in keys)
    starts = tuple(state.log.starts.get(key, 0) for key in keys) if topic else ends
    places = tuple(tuple(x.place for x in state.extents.get(key, ())) for key in keys)
    writers = {w: (last.batch, last.fingerprint) for w, last in state.log.writers.items()}
    return (
        state.number, state.entry_id, topic.id if topic else "", starts, ends, places, writers,
        dict(state.resets), state.term, state.floor,
        {
            id: tuple(tuple(x.place for x in parts.extents.get(p, ())) for p in PARTITIONS)
            for id, parts in state.deleted.items()
        },
    )  # fmt: skip


@dataclass(slots=True)
class Oracle:
    """Watches a bucket with one log in it."""

    bucket: ScheduledBucket
    log_id: str
    truth: Truth = field(init=False)
    digests: dict[int, Digest] = field(default_factory=dict)
    rows: dict[tuple[int, int], bytes] = field(default_factory=dict)  # by partition and offset
    cleaned: set[tuple[int, int]] = field(default_factory=set)
    planned: dict[str, Call] = field(default_factory=dict)
    calls: set[str] = field(default_factory=set)  # that landed
    dead: set[str] = field(default_factory=set)  # of which somebody was told that they never will
    batches: set[tuple[str, int, str]] = field(default_factory=set)
    last: dict[str, int] = field(default_factory=dict)
    acked: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    shown: tuple[set[int], set[int]] = field(default_factory=lambda: (set(), set()))
    landed_at: dict[int, int] = field(default_factory=dict)  # entry: step
    _ids: dict[int, str] = field(default_factory=dict)  # attempt ids of the entries
    _right: dict[Extent, bytes] = field(default_factory=dict)  # bytes last found to be right

    def __post_init__(self) -> None:
        self.truth = Truth(id=self.log_id)
        self.digests[-1] = self.truth.digest()
        self.bucket.watch.append(self.look)

    # --- effects -----------------------------------------------------------------------------

    def look(self, effect: Effect) -> None:
        """Judge what a write did."""
        prefix, _, rest = effect.name.rpartition("/")
        touched: Iterable[int] = PARTITIONS
        if prefix == f"ledger-{self.log_id}":
            if not self._entry(int(rest), effect):
                return
        elif effect.before is None and effect.verb != "delete":
            touched = ()  # nothing named it
        for p in touched:
            self._check_partition(p)
        if parse_directory(prefix) is not None:
            self._check_archive()

    def _entry(self, number: int, effect: Effect) -> bool:
        """Judge a write to the ledger; False where what lies there is half an entry."""
        entry = self._decoded(number, effect.after)
        known = self._ids.get(number)
        if entry is None:
            need(known is None or effect.after, f"entry {number} was deleted")
            return known is not None
        need(known in (None, entry.id), f"entry {number} was replaced by another one")
        if number == self.truth.number + 1:
            self._ids[number] = entry.id
            self.landed_at[number] = self.bucket.schedule.step
            self._land(number, entry)
            self.digests[number] = self.truth.digest()
            self.bucket.schedule.stats[f"entry {entry.record.kind}"] += 1
        else:
            need(known == entry.id, f"entry {number} came before {self.truth.number + 1}")
        return True

    def _decoded(self, number: int, raw: bytes | None) -> Entry | None:
        try:
            return None if raw is None else entries.decode(raw, number=number, path="")
        except DataCorruptionError:
            return None

    # --- the fold ----------------------------------------------------------------------------

    def _land(self, number: int, entry: Entry) -> None:
        truth, record = self.truth, entry.record
        need(entry.prev == truth.id, "an entry follows another history")
        truth.number, truth.id = number, entry.id
        match record:
            case AppendRecord():
                self._commit(number, entry, record)
            case MergeRecord():
                self._merge(number, entry, record)
            case StartRecord():
                for key, start in record.starts.items():
                    need(start <= truth.ends[key.partition], "a log start beyond the end")
                    self._raise_start(key.partition, start)
            case TopicRecord() if not truth.topic_id:
                for p, base in record.bases.items():
                    need(base >= truth.ends[p], "a topic that is made again has offsets twice")
                    truth.starts[p] = truth.ends[p] = base
                truth.topic_id = record.id
            case TopicRecord():
                need(record.id == truth.topic_id, "a topic was made that was there")
            case DropRecord():
                need(record.id == truth.topic_id, "a topic was dropped that isn't this one")
                if record.delay_ms:
                    now_ms = self.bucket.schedule.now_ms()
                    truth.deleted[record.id] = Deleted(
                        truth.starts, list(truth.ends), truth.extents, now_ms, record.delay_ms
                    )
                truth.topic_id, truth.extents = "", [[], []]
                truth.starts = list(truth.ends)
            case UndeleteRecord():
                need(not truth.topic_id, "a topic was given back where another one is")
                one = truth.deleted.pop(record.id)
                need(one.ends == truth.ends, "a topic was given back whose offsets came again")
                truth.topic_id, truth.starts = record.id, one.starts
                truth.extents = one.extents
            case PurgeRecord():
                for id in record.ids:
                    one = truth.deleted.pop(id)
                    waited_ms = self.bucket.schedule.now_ms() - one.at_ms
                    need(waited_ms >= one.delay_ms, "a topic was given up before its time")
            case ResetRecord():
                self._reset(number, record)
            case TermRecord():
                need(record.term > truth.term, "a term isn't above the one before")
                truth.term = record.term
            case FloorRecord():
                need(record.term == truth.term, "a service that is none any more raised the floor")
                truth.floor = max(truth.floor, record.floor)
            case NoOpRecord():
                pass
            case _:
                raise Violation(f"an entry of kind {record.kind}, which nobody makes here")

    def _commit(self, number: int, entry: Entry, record: AppendRecord) -> None:
        truth, call = self.truth, self.planned[record.app]
        need(call.id not in self.calls | self.dead, "a call came twice, or after it had failed")
        need(call.topic_id == truth.topic_id, "records meant for another topic")
        self.calls.add(call.id)
        if isinstance(record, CommitRecord):
            writer, batch = record.writer, record.batch
            need(call.batch == (writer, batch, record.fingerprint), "another micro-batch's rows")
            need(batch > self.last.get(writer, -1), "a micro-batch came again")
            before = truth.resets.get(writer, -1)
            need(call.head >= before, "a micro-batch from before a reset came after it")
            self.batches.add((writer, batch, record.fingerprint))
            self.last[writer] = batch
            truth.writers[writer] = batch, record.fingerprint
        need({key.partition for key, _ in entry.extents} == call.rows.keys(), "other partitions")
        for p, rows in call.rows.items():
            first = truth.ends[p]
            for offset, row in enumerate(rows, first):
                need(self.rows.setdefault((p, offset), row) is row, "an offset was used twice")
            self._add(number, entry, p, first)
            need(truth.ends[p] == first + len(rows), "extents of more or fewer records")

    def _add(self, number: int, entry: Entry, p: int, at: int) -> None:
        for extent in self._named(number, entry, p):
            need(extent.base == at < extent.end, "a commit's bases are not the ends")
            self.truth.extents[p].append(extent)
            at = extent.end
        self.truth.ends[p] = at

    def _named(self, number: int, entry: Entry, p: int) -> list[Extent]:
        inline = f"ledger-{self.log_id}/{number:020d}"
        found = [extent for key, extent in entry.extents if key.partition == p]
        return [
            x._replace(object=inline, start=x.start + entry.data_at) if not x.object else x
            for x in found
        ]

    def _merge(self, number: int, entry: Entry, record: MergeRecord) -> None:
        truth, p = self.truth, record.partition
        need(record.term == truth.term, "a merge of a service that is none any more")
        need(record.topic_id == truth.topic_id, "a merge of another topic")
        places = [x.place for x in truth.extents[p]]
        at = places.index(record.sources[0]) if record.sources[0] in places else -1
        end = at + len(record.sources)
        need(at >= 0 and tuple(places[at:end]) == record.sources, "a merge of other extents")
        new = self._named(number, entry, p)
        truth.extents[p][at:end] = new
        if record.gaps:
            held = {offset for x in new for offset, _ in self._records(x) or ()}
            gone = set(range(record.sources[0][0], record.sources[-1][1])) - held
            later = {self._key(p, o): o for o in range(truth.starts[p], truth.ends[p])}
            for offset in gone - {o for q, o in self.cleaned if q == p}:
                need(
                    later[self._key(p, offset)] > offset, f"{p}:{offset} was cleaned, the last one"
                )
            self.cleaned |= {(p, offset) for offset in gone}

    def _key(self, p: int, offset: int) -> bytes:
        return self.rows[p, offset].rpartition(b":")[2]

    def _raise_start(self, p: int, start: int) -> None:
        truth = self.truth
        truth.starts[p] = max(truth.starts[p], start)
        truth.extents[p] = [x for x in truth.extents[p] if x.end > truth.starts[p]]

    def _reset(self, number: int, record: ResetRecord) -> None:
        for writer, last in (record.writers or {}).items():
            self.truth.resets[writer] = number
            self.truth.writers.pop(writer, None)
            self.last.pop(writer, None)
            if last is not None:
                self.truth.writers[writer] = last.batch, last.fingerprint
                self.last[writer] = last.batch

    # --- what is there -----------------------------------------------------------------------

    def _check_partition(self, p: int) -> None:
        """What the log names is there, and right."""
        truth = self.truth
        at = truth.starts[p]
        for extent in truth.extents[p]:
            need(extent.base <= at < extent.end, "extents leave a hole, or overlap")
            at = extent.end
            self._check_extent(p, extent)
        need(at == truth.ends[p], "extents don't reach the end")
        for one in truth.deleted.values():
            for extent in one.extents[p]:
                self._check_extent(p, extent)

    def _check_extent(self, p: int, extent: Extent) -> None:
        found = self.bucket.objects.get(extent.object)
        if found is not None and self._right.get(extent) is found[0]:
            return
        records = self._records(extent)
        need(records is not None, f"named by the log, and gone: {extent}")
        offsets = range(extent.base, extent.end)
        want = [(o, self.rows[p, o]) for o in offsets if (p, o) not in self.cleaned]
        got = [each for each in records or () if (p, each[0]) not in self.cleaned]
        need(got == want, f"not the records of these offsets: {extent}\n{got}\n{want}")
        if found is not None:
            self._right[extent] = found[0]

    def _records(self, extent: Extent) -> list[tuple[int, bytes]] | None:
        """(offset, value) of an extent, from its object; None if they aren't there."""
        found = self.bucket.objects.get(extent.object)
        if found is None:
            return None
        data = found[0][extent.start : extent.start + extent.size]
        if len(data) != extent.size:
            return None
        return records_of(data, 0 if extent.segment else extent.base)

    def _check_archive(self) -> None:
        """Whoever has the manifests alone never loses what they showed."""
        for p in PARTITIONS:
            cover = self._covered(p) if self.truth.topic_id else set()
            start = self.truth.starts[p]
            lost = {offset for offset in self.shown[p] if offset >= start} - cover
            need(not lost, f"whoever reads the manifests alone loses {p}: {sorted(lost)}")
            self.shown[p].clear()
            self.shown[p].update(cover)

    def _covered(self, p: int) -> set[int]:
        """The offsets of a partition that its manifests show; of two the later one counts."""
        prefix = f"{TOPIC}-{p}-{self.truth.topic_id}/"
        names = [name for name in self.bucket.objects if name.startswith(prefix)]
        logs = {parse_log(name.removeprefix(prefix)) for name in names}
        found, replaced = [], set()
        for name in names:
            listed = parse_manifest(name.removeprefix(prefix))
            if listed is not None and (listed.base, listed.id) in logs:
                fields = json.loads(self.bucket.objects[name][0].partition(b"\n")[0])["manifest"]
                replaced |= set(fields["replaces"])
                epoch = fields["leader_epochs"][-1][0] if fields["leader_epochs"] else -1
                found.append((epoch, fields["copied_ms"], listed.id, listed.base, listed.end))
        cover: set[int] = set()
        for _, _, segment, base, end in sorted(found, reverse=True):
            if segment not in replaced and cover.isdisjoint(range(base, end)):
                cover |= set(range(base, end))
        return cover

    # --- what processes say ------------------------------------------------------------------

    def plan(self, call: Call) -> None:
        """A writer is about to commit this."""
        self.planned[call.id] = call

    def takes_for_head(self, state: DisklessState, least: int) -> None:
        """A process takes `state` for the head; entry `least` was there when it began to look."""
        need(state.number >= least, f"entry {state.number} was taken for the head of {least}")
        need(digest_of(state) == self.digests[state.number], f"a wrong state of {state.number}")

    def told(self, done: bool, call: str, batch: tuple[str, int, str] | None = None) -> None:
        """A writer was told that its batch, or call, is committed; or that it never will be."""
        true = batch in self.batches if batch else call in self.calls
        need(done == true, f"{call} was told that it is {'' if done else 'not '}committed")
        if not done:
            self.dead.add(call)
        self.bucket.schedule.stats["told"] += 1

    def given_out(self, p: int, start: int, end: int, got: Mapping[int, bytes]) -> None:
        """A reader gave out the offsets [start, end) of a partition."""
        for offset in range(start, end):
            right = got.get(offset) == self.rows[p, offset]
            absent = offset not in got and (p, offset) in self.cleaned
            need(right or absent, f"a reader missed {p}:{offset}, or got another record")
        self.bucket.schedule.stats["read"] += end - start

    # --- the end -------------------------------------------------------------------------------

    def check_end(self) -> None:
        """After the last service: nothing is there that nobody needs, and no manifest misses."""
        need(not self.truth.deleted, "a deleted topic that no service ever gives up")
        named = {x.object for each in self.truth.extents for x in each}
        left: set[str] = set()
        for name, (data, _) in self.bucket.objects.items():
            prefix, _, rest = name.rpartition("/")
            if name.startswith(f"staged-{self.log_id}/") and name not in named:
                left.add(name)
            elif prefix == f"ledger-{self.log_id}" and name not in named:
                entry = entries.decode(data, number=int(rest), path=name)
                left |= {name} if len(data) > entry.data_at else set()
            elif parse_directory(prefix) is not None:
                listed = parse_manifest(rest)
                log = f"{listed.base:020d}-{listed.id}.log" if listed else rest
                left |= {name} if f"{prefix}/{log}" not in named else set()
        need(not left, f"garbage that no service ever finds: {sorted(left)}")
        without = {x.object for each in self.truth.extents for x in each if x.segment}
        for name in self.bucket.objects:
            prefix, _, rest = name.rpartition("/")
            listed = parse_manifest(rest)
            if listed is not None:
                without.discard(f"{prefix}/{listed.base:020d}-{listed.id}.log")
        need(not without, f"segments whose manifests no service ever makes: {sorted(without)}")

    def folded_anew(self) -> DisklessState:
        """What the code under test makes of the ledger, from its first entry on."""
        state = DisklessState(self.log_id)
        for number in range(self.truth.number + 1):
            name = f"ledger-{self.log_id}/{number:020d}"
            entry = entries.decode(self.bucket.objects[name][0], number=number, path=name)
            state.apply(entry, path=name)
        return state


def records_of(data: bytes, base: int) -> list[tuple[int, bytes]]:
    """(base + offset, value) of whole, uncompressed v2 batches.

    Batches of a chunk each count their offsets on from the one before; a segment's are absolute.
    """
    found, at = [], 0
    while at < len(data):
        first = int.from_bytes(data[at : at + 8], "big")
        end = at + 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        need(end <= len(data), "a batch that isn't whole")
        need(
            int.from_bytes(data[at + 17 : at + 21], "big") == crc32c(data[at + 21 : end]),
            "a batch with a wrong CRC",
        )
        need(data[at + 22] & 0x27 == 0, "a compressed batch, or a control batch")
        count, at = int.from_bytes(data[at + 57 : at + 61], "big"), at + 61
        for _ in range(count):
            offset, value, at = _record(data, at)
            found.append((base + first + offset, value))
        need(at == end, "a batch that is longer than its records")
    return found


def _record(data: bytes, at: int) -> tuple[int, bytes, int]:
    """(offset delta, value, where the next record begins)."""
    size, at = _varint(data, at)
    end = at + size
    _, at = _varint(data, at + 1)  # attributes, timestamp delta
    offset, at = _varint(data, at)
    key_size, at = _varint(data, at)
    value_size, at = _varint(data, at + max(key_size, 0))
    return offset, data[at : at + value_size], end


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
