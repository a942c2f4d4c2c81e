"""Ledger entries: the content of each object `ledger-<log id>/<n>`, and its encoding.

An entry is a Kafka record batch with a single record at offset n, followed by inline data, if any,
so Kafka's tools can dump it. The record's value is JSON:

    v, id, prev     version; random id of this attempt; id of entry n-1 (the log id if n is 0)
    record          the change, as in a log dir's ledger (`storage.ledger_records`), or a kind
                    that exists only in buckets: merge, import, term, floor, noop
    extents         locations of the records that it commits, [[topic, partition, ...], ...]
    seen            the newest entry that the writer knew when the call began
    before          the entry of the writer's previous commit; for a reset {writer: entry}
    crcs            the CRC-32C of each of `extents`, in order; null if unknown
    keys            wrapped data keys of the objects that the entry refers to
    producers       for an idempotent append to one partition: producer, epoch and sequences of
                    its batches; to several: `producers_of`, [[topic, partition, batches], ...]

A reader stops at an entry with an unknown kind or version, and never skips it.
"""

import json
import re
import shlex
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import singledispatch
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias

from sparklog.common import TopicPartition
from sparklog.diskless.extents import Extent
from sparklog.diskless.names import checked_object
from sparklog.errors import DataCorruptionError, InvalidRequestError
from sparklog.format.batch import decode_one, encode_one
from sparklog.format.names import check_topic
from sparklog.storage import ledger_records
from sparklog.storage.ledger_records import (
    AppendRecord,
    CommitRecord,
    InvalidRecordError,
    LedgerRecord,
    ResetRecord,
    SnapshotRecord,
    TopicRecord,
)
from sparklog.storage.stored_json import FORMAT_VERSION, check_version, parse_json
from sparklog.tiered.layout.manifest import WrappedKey

ENTRY_BYTES_MAX: Final = 8 << 20
"""Maximum size of an entry with its inline data: a PUT, never multipart, and quick to retry."""
_MALFORMED: Final = (KeyError, TypeError, ValueError, AttributeError, IndexError)
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")

Place: TypeAlias = tuple[int, int, str, int]
"""Base offset, end offset, object and first byte of an extent: `Extent.place`."""
Epochs: TypeAlias = tuple[tuple[int, int], ...]
"""((leader epoch, its first offset), ...), ascending."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _HomeRecord:
    """Fields of all kinds of records that exist only in buckets.

    Attributes:
        time_ms: The time of the entry in ms, which never decreases.
        epoch: The log's leader epoch.
    """

    kind: ClassVar[str]
    time_ms: int = 0
    epoch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRecord(_HomeRecord):
    """Replaces the extents `sources` by the entry's extents, if the state contains `sources`.

    The log cleaner's replacement of segments is a merge as well.

    Attributes:
        term: The service's term. The record has no effect if the log has another term.
        sources: The extents that are replaced.
        gaps: Whether offsets may be missing from now on.
    """

    kind: ClassVar[str] = "merge"
    term: int
    topic: str
    topic_id: str
    partition: int
    sources: tuple[Place, ...]
    gaps: bool = False

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRecord(_HomeRecord):
    """The entry's extents fill offsets below the ends in the snapshot at the ledger's beginning.

    Used for a fork, or to create a log of remote segments, before the home object is created. An
    entry with producers has exactly one partition in `epochs`.

    Attributes:
        epochs: {partition: leader epochs up to the end of the extents}.
        gaps: Partitions in which offsets may be missing.
    """

    kind: ClassVar[str] = "import"
    epochs: Mapping[TopicPartition, Epochs] = field(default_factory=dict)
    gaps: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class TermRecord(_HomeRecord):
    """A service acquires the lease. `holder` identifies it for people: host, pid, since_ms."""

    kind: ClassVar[str] = "term"
    term: int
    holder: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FloorRecord(_HomeRecord):
    """Raises the stage floor, the entry before which staging may have begun too long ago.

    Staged objects can't be committed any more if the newest entry had a number below `floor` when
    their staging began.
    """

    kind: ClassVar[str] = "floor"
    term: int
    floor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NoOpRecord(_HomeRecord):
    """An entry without a change.

    The entry occupies the number, so that no other request for this number takes effect.
    """

    kind: ClassVar[str] = "noop"


HomeRecord: TypeAlias = MergeRecord | ImportRecord | TermRecord | FloorRecord | NoOpRecord
EntryRecord: TypeAlias = LedgerRecord | HomeRecord


class ObjectKey(NamedTuple):
    """The data that are needed to read an encrypted object.

    Attributes:
        id: The id to which the key is bound: a segment's id, or a new id for a staged object.
        wrapped: The data key, encrypted by a key of the keyring.
        size: The number of plain bytes.
        at: The position of the first encrypted byte in the object. Positions of extents count from
            there, in plain bytes.
    """

    id: str
    wrapped: WrappedKey
    size: int
    at: int = 0


class ProducerBatch(NamedTuple):
    """A committed batch of an idempotent producer."""

    producer_id: int
    epoch: int
    base_sequence: int
    base_offset: int
    last_offset: int
    max_timestamp: int


ProducerBatches: TypeAlias = Mapping[TopicPartition, tuple[ProducerBatch, ...]]
"""The batches of idempotent producers, by partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A ledger entry.

    An extent with `object` "" is part of the entry itself; its `start` counts from the first inline
    byte.

    Attributes:
        before: The number of the entry with the writer's previous commit; -1 without such a commit.
        kept_commits: For a reset, {writer: number of the entry with the last remaining commit, or
            -1}.
        data_at: The number of bytes before the inline data, once the entry was encoded or read.
    """

    id: str
    prev: str
    record: EntryRecord
    extents: tuple[tuple[TopicPartition, Extent], ...] = ()
    seen: int = -1
    before: int = -1
    kept_commits: Mapping[str, int] = field(default_factory=dict)
    keys: Mapping[str, ObjectKey] = field(default_factory=dict)
    producers: ProducerBatches = field(default_factory=dict)
    data_at: int = 0

    @property
    def has_data(self) -> bool:
        """True if the entry was committed with inline data, even if they were cut since."""
        return any(not extent.object for _, extent in self.extents)


def new_attempt_id() -> str:
    """Return a random id for an attempt to create an entry."""
    return uuid.uuid4().hex


def encode(number: int, entry: Entry, data: bytes | bytearray | memoryview = b"") -> bytes:
    """Encode entry `number`, followed by the inline data.

    Raises:
        InvalidRequestError: The entry would be larger than ENTRY_BYTES_MAX.
    """
    fields: dict[str, Any] = {"v": FORMAT_VERSION, "id": entry.id, "prev": entry.prev}
    if entry.extents:
        fields["extents"] = [_extent_to_json(key, extent) for key, extent in entry.extents]
        if any(extent.crc >= 0 for _, extent in entry.extents):
            crcs = (extent.crc for _, extent in entry.extents)
            fields["crcs"] = [crc if crc >= 0 else None for crc in crcs]
    if entry.seen >= 0:
        fields["seen"] = entry.seen
    if entry.before >= 0 or entry.kept_commits:
        fields["before"] = dict(entry.kept_commits) if entry.kept_commits else entry.before
    if entry.keys:
        fields["keys"] = {name: key_to_json(key) for name, key in entry.keys.items()}
    if entry.producers:
        fields |= _producers_to_json(entry)
    head = json.dumps(fields, separators=(",", ":")).encode()
    value = head[:-1] + b',"record":' + _record_bytes(entry.record) + b"}"
    # The key of the record is the writer, as in the ledger of a log dir.
    writer = entry.record.writer if isinstance(entry.record, CommitRecord | ResetRecord) else ""
    batch = encode_one(writer.encode() or None, value, timestamp=max(entry.record.time_ms, 0))
    # The base offset, which the CRC of a batch does not cover.
    batch[:8] = number.to_bytes(8, "big")
    size = len(batch) + len(data)
    if size > ENTRY_BYTES_MAX:
        raise InvalidRequestError(
            f"the ledger entry of this change (a {entry.record.kind} record) would have {size} "
            f"bytes, but the maximum is {ENTRY_BYTES_MAX}: split the change"
        )
    return bytes(batch) + bytes(data)


def decode(raw: bytes, *, number: int, path: str) -> Entry:
    """Decode entry `number` from the bytes of an object, with or without the inline data.

    Cost: a CRC pass over the record.

    Args:
        path: The object's URL, for errors.

    Raises:
        DataCorruptionError: The object contains no entry, an incomplete entry or another entry.
        UnsupportedVersionError: A newer sparklog wrote the entry.
    """
    try:
        offset, value, size = decode_one(raw, path=path)
        if offset != number:
            raise ValueError(f"the object contains entry {offset}")
        fields = parse_json(value or b"")
        check_version(fields["v"], path)
        before = fields.get("before", -1)
        record = _record_of(fields["record"], path=path, number=number)
        return Entry(
            id=_text(fields["id"]),
            prev=_text(fields["prev"]),
            record=record,
            extents=_extents_from_json(fields),
            seen=fields.get("seen", -1),
            before=before if isinstance(before, int) else -1,
            kept_commits=before if isinstance(before, dict) else {},
            keys=keys_from_json(fields.get("keys", {})),
            producers=_producers_from_json(fields, record),
            data_at=size,
        )
    except _MALFORMED as error:
        if isinstance(error, InvalidRequestError):  # written by a newer sparklog
            raise
        reason = f"field {error} is missing" if isinstance(error, KeyError) else str(error)
        raise _damaged(reason, number, path) from error


def restore_advice(path: str) -> str:
    """Return the advice for an entry at `path` that is missing, damaged or contradictory."""
    home = shlex.quote(path.rpartition("/ledger-")[0])
    return (
        "restore the object from a copy of the bucket or from an older object version. If there "
        f"is no copy, `sparklog verify {home} --repair --dry-run` lists the commits that would be "
        f"given up, and `sparklog verify {home} --repair` gives them up"
    )


def _damaged(reason: str, number: int, path: str) -> DataCorruptionError:
    return InvalidRecordError(
        f"the object is not a valid ledger entry ({reason}); {restore_advice(path)}",
        path=path,
        first=number,
        end=number + 1,
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a string, got {value!r}")
    return value


# -- producers


def _sole(record: EntryRecord) -> TopicPartition | None:
    """Return the only partition of a record; None for several partitions, or without any."""
    keys: Iterable[TopicPartition] = ()
    if isinstance(record, AppendRecord):
        keys = record.ends
    elif isinstance(record, ImportRecord):
        keys = record.epochs
    partitions = tuple(keys)
    return partitions[0] if len(partitions) == 1 else None


def _producers_to_json(entry: Entry) -> dict[str, Any]:
    if [*entry.producers] == [_sole(entry.record)]:
        (batches,) = entry.producers.values()
        return {"producers": [list(batch) for batch in batches]}
    return {"producers_of": [[*key, [*map(list, each)]] for key, each in entry.producers.items()]}


def _producers_from_json(fields: Mapping[str, Any], record: EntryRecord) -> ProducerBatches:
    if "producers" in fields:
        key = _sole(record)
        if key is None:
            raise ValueError("the entry has producers, but no partition for them")
        return {key: tuple(ProducerBatch(*each) for each in fields["producers"])}
    return {
        TopicPartition(_text(topic), partition): tuple(ProducerBatch(*each) for each in batches)
        for topic, partition, batches in fields.get("producers_of", ())
    }


# -- extents and keys


def _extent_to_json(key: TopicPartition, extent: Extent) -> list[Any]:
    tail: tuple[Any, ...] = (extent.segment, extent.stamp_ms, extent.pieces)
    tail = () if tail == ("", -1, 0) else tail
    return [
        key.topic, key.partition, extent.base, extent.end, extent.object, extent.start,
        extent.size, extent.max_timestamp, extent.epoch, *tail,
    ]  # fmt: skip


def _extents_from_json(
    fields: Mapping[str, Any],
) -> tuple[tuple[TopicPartition, Extent], ...]:
    extents = [_extent_from_json(each) for each in fields.get("extents", ())]
    crcs = fields.get("crcs")
    if crcs is None:
        return tuple(extents)
    if not all(crc is None or (type(crc) is int and 0 <= crc < 1 << 32) for crc in crcs):
        raise ValueError("the checksum of an extent is not a CRC-32C")
    return tuple(
        (key, extent if crc is None else extent._replace(crc=crc))
        for (key, extent), crc in zip(extents, crcs, strict=True)
    )


def _extent_from_json(values: list[Any]) -> tuple[TopicPartition, Extent]:
    topic, partition, base, end, name, start, size, latest, epoch, *tail = values
    if not (0 <= base <= end and start >= 0 and size >= 0):
        raise ValueError(f"{values!r} is not a valid extent")
    name = checked_object(name) if name else ""
    extent = Extent(base, end, name, start, size, latest, epoch, -1, *tail)
    return TopicPartition(_text(topic), partition), extent


def key_to_json(key: ObjectKey) -> dict[str, Any]:
    """Return the JSON form of a key, which entries and states share."""
    return {"id": key.id, "wrapped": key.wrapped.to_dict(), "size": key.size, "at": key.at}


def keys_from_json(fields: Mapping[str, Any]) -> dict[str, ObjectKey]:
    """Return {object name: key}; the name of the inline data is ""."""
    return {
        checked_object(name) if name else "": key_from_json(key) for name, key in fields.items()
    }


def key_from_json(fields: Mapping[str, Any]) -> ObjectKey:
    """Parse a key."""
    wrapped = WrappedKey.parse(fields["wrapped"])
    return ObjectKey(_text(fields["id"]), wrapped, fields["size"], fields["at"])


# -- records


@singledispatch
def _record_bytes(record: Any) -> bytes:
    """Encode a record as JSON. Kinds that log dirs have too use the form of `ledger_records`."""
    return ledger_records.encode(record)


@_record_bytes.register
def _(record: MergeRecord) -> bytes:
    fields: dict[str, Any] = {
        "term": record.term, "topic": record.topic, "id": record.topic_id,
        "partition": record.partition, "sources": [list(place) for place in record.sources],
    }  # fmt: skip
    return _home_record(record, fields | ({"gaps": True} if record.gaps else {}))


@_record_bytes.register
def _(record: ImportRecord) -> bytes:
    epochs = [[*key, [list(each) for each in found]] for key, found in record.epochs.items()]
    return _home_record(record, {"epochs": epochs, "gaps": sorted(record.gaps)})


@_record_bytes.register
def _(record: TermRecord) -> bytes:
    return _home_record(record, {"term": record.term, "holder": dict(record.holder)})


@_record_bytes.register
def _(record: FloorRecord) -> bytes:
    return _home_record(record, {"term": record.term, "floor": record.floor})


@_record_bytes.register
def _(record: NoOpRecord) -> bytes:
    return _home_record(record, {})


def _home_record(record: _HomeRecord, fields: dict[str, Any]) -> bytes:
    whole = {"kind": record.kind, **fields, "time": record.time_ms, "epoch": record.epoch}
    return json.dumps(whole, separators=(",", ":")).encode()


def _record_of(fields: dict[str, Any], *, path: str, number: int) -> EntryRecord:
    common = {"time_ms": int(fields["time"]), "epoch": int(fields["epoch"])}
    match fields["kind"]:
        case "merge":
            return MergeRecord(
                term=fields["term"], topic=_text(fields["topic"]), topic_id=_text(fields["id"]),
                partition=fields["partition"],
                sources=tuple((b, e, checked_object(o), s) for b, e, o, s in fields["sources"]),
                gaps=fields.get("gaps", False), **common,
            )  # fmt: skip
        case "import":
            epochs = {
                TopicPartition(topic, p): tuple((e, start) for e, start in found)
                for topic, p, found in fields["epochs"]
            }
            gaps = frozenset(TopicPartition(topic, p) for topic, p in fields["gaps"])
            return ImportRecord(epochs=epochs, gaps=gaps, **common)
        case "term":
            return TermRecord(term=fields["term"], holder=fields["holder"], **common)
        case "floor":
            return FloorRecord(term=fields["term"], floor=fields["floor"], **common)
        case "noop":
            return NoOpRecord(**common)
        case _:
            return checked_record(ledger_records.decode(fields, path=path, offset=number))


def checked_record(record: LedgerRecord) -> LedgerRecord:
    """Return a record read from the store after checking the topics, which become object names.

    Raises:
        ValueError: A topic's name or id is not valid in Kafka.
    """
    topics: list[tuple[str, str]] = []
    if isinstance(record, TopicRecord):
        topics = [(record.topic, record.id)]
    elif isinstance(record, SnapshotRecord):
        topics = [(name, topic.id) for name, topic in record.topics.items()]
        topics += [(held.name, topic_id) for topic_id, held in record.deleted.items()]
    for name, topic_id in topics:
        try:
            check_topic(name)
        except InvalidRequestError as error:
            raise ValueError(str(error)) from error
        if not _ID.fullmatch(topic_id):
            raise ValueError(f"{topic_id!r} is not a valid topic id")
    return record
