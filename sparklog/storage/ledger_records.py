"""The records of the commit ledger (a class per kind of record), and the form on disk.

Each record is a JSON object. All have `v`, `kind`, `time` (ms), `epoch` (the leader epoch), and
`flush` if it is "none". Further fields by kind:

    commit    a micro-batch: writer, batch, fp, ends {topic: {partition: [first, end]}}
    append    the same without an identity. In both kinds, `bytes` is the size of the batches, and
              `ms` the time from requesting the lock to this record (for monitoring; older versions
              of sparklog wrote neither). `source` and `app`: the description that the caller gave;
              `idempotent`: some batches have a producer id; `crcs`: for each partition, in the
              order of `ends`, the CRC-32C of the CRC fields of its batches; `tails`: the CRC field
              of its last batch. Older versions and buckets write neither `crcs` nor `tails`
    topic     a topic was created or altered: topic, id, config, bases {partition: base}, dirs,
              left; or a partition restarts at its old end: `given_up` describes the loss
    drop      a topic was deleted: topic, id; `delay`: how long (ms) it can be restored
    undelete  a deleted topic was restored: topic (its new name), id
    purge     deleted topics can no longer be restored: ids
    start     log start offsets were raised: starts {topic: {partition: offset}}; `local`, in the
              same form: only local segments are deleted, and their copies in remote storage stay;
              `given_up`: segments were missing. A record without starts begins a leader epoch
    reset     writers (`writer`: a query's id, or a single writer) may commit the batches after
              `batch` again: writers {writer: its new last batch, as in a snapshot, or null}.
              Without `writers`: only `writer` may commit again from `batch` on. `abandoned`: the
              offsets that they had committed after it, {topic: {partition: [[first, end], ...]}};
              older versions wrote none, also not in snapshots
    adopt     a broker's directory was adopted: topics, ends, starts
    snapshot  the complete state; the first record of every ledger segment. `fork`: the log that
              was forked; `tails`: the CRC field of each partition's last batch, if known;
              `deleted`: {topic id: the state of a topic that can be restored}; `lost`: offsets of
              commits whose records were lost {time, offsets {topic: {partition: [[first, end]]}}},
              written by a repair of the ledger. Older versions ignore it

A commit's `origin` identifies the query and how far it had read (`query_origin`). The snapshot has
the last origin of each writer, and the topics that it wrote to.

Fields that older versions did not write are None here, and are not written again. Unknown fields
are ignored: a newer version may add fields without increasing `v`.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import fields as fields_of
from functools import lru_cache
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias, TypeVar, assert_never

from sparklog.common import TopicPartition
from sparklog.errors import DataCorruptionError, UnsupportedVersionError
from sparklog.storage.deleted_topic import DeletedTopic
from sparklog.storage.offset_ranges import OffsetRange
from sparklog.storage.query_origin import QueryOrigin
from sparklog.storage.stored_json import FORMAT_VERSION, check_version, parse_json
from sparklog.storage.topic_state import TopicState, by_partition

TIERED_VERSION: Final = 2
"""The version of records with local starts: older versions would miss the segments below them."""
DELETED_VERSION: Final = 3
"""The version of records of restorable topics: older versions would delete their files."""

Offsets: TypeAlias = Mapping[TopicPartition, int]
Ranges: TypeAlias = Mapping[TopicPartition, OffsetRange]
RangeSets: TypeAlias = Mapping[TopicPartition, Sequence[OffsetRange]]
COMMITTED_BEFORE: Final = "*"
"""The fingerprint of a micro-batch that its owner declared to be in the log: any replay fits."""
_T = TypeVar("_T")
_MALFORMED: Final = (KeyError, TypeError, ValueError, AttributeError, IndexError)


class InvalidRecordError(DataCorruptionError):
    """A ledger record that is complete, but has an invalid kind or field.

    (Kafka: InvalidRecordException)
    """


class LastMicroBatch(NamedTuple):
    """The newest micro-batch of a writer.

    Attributes:
        batch: The batch id.
        fingerprint: The fingerprint of the micro-batch's planned offsets.
        time_ms: The time of its commit, ms.
        ends: The committed offsets by partition; None if they must be looked up in the ledger.
    """

    batch: int
    fingerprint: str
    time_ms: int
    ends: Ranges | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenUpRange:
    """Offsets [first, end) that an offline partition lost, and why the partition was offline."""

    topic: str
    partition: int
    first: int
    end: int
    directory: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LostCommits:
    """Offsets, by partition, of commits without a surviving ledger record.

    A writer without a later commit may have written them: see `sparklog.log.commit`. `time_ms`:
    when a repair of the ledger found the offsets.
    """

    time_ms: int
    offsets: RangeSets

    def above(self, starts: Mapping[TopicPartition, int]) -> "LostCommits | None":
        """Return the lost commits of partitions with lost offsets above the log start, or None."""
        kept = {
            key: spans
            for key, spans in self.offsets.items()
            if spans[-1].end > starts.get(key, 0)
        }
        return LostCommits(time_ms=self.time_ms, offsets=kept) if kept else None


@dataclass(frozen=True, slots=True)
class ForkedFrom:
    """The log from which a fork was made, and the offset and time of the last included record."""

    path: str
    offset: int
    time_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Record:
    """The fields that all kinds of records have.

    Attributes:
        time_ms: The time. A lower bound until the ledger sets it.
        epoch: The leader epoch. A lower bound until the ledger sets it.
        flushed: Whether the record was synced before the commit returned (flush=commit).
    """

    kind: ClassVar[str]
    time_ms: int = 0
    epoch: int = 0
    flushed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendRecord(_Record):
    """An append of batches at the offsets `ends`.

    Attributes:
        ends: {partition: the offsets [first, end) of the batches}.
        size_bytes: The size of the batches; None in records of older versions.
        duration_ms: The time from requesting the lock to this record.
        source: The description of the append's source that the caller gave.
        app: The application that the caller named.
        idempotent: Whether a batch has a producer id.
        stamped: Whether the topics have message.timestamp.type=LogAppendTime, so that the batches
            have the timestamp `time_ms`.
        crcs: Per partition, the CRC-32C of the CRC fields of the batches.
        tails: Per partition, the CRC field of the last batch.
    """

    kind: ClassVar[str] = "append"
    ends: Ranges
    size_bytes: int | None = None
    duration_ms: int | None = None
    source: Mapping[str, Any] | None = None
    app: str = ""
    idempotent: bool = False
    stamped: bool = False
    crcs: Mapping[TopicPartition, int] | None = None
    tails: Mapping[TopicPartition, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRecord(AppendRecord):
    """An append of a writer's micro-batch.

    Attributes:
        writer: The writer, a query's sink.
        batch: The batch id.
        fingerprint: The fingerprint of the micro-batch's planned offsets.
        origin: The properties by which the query is recognized, if known.
    """

    kind: ClassVar[str] = "commit"
    writer: str
    batch: int
    fingerprint: str
    origin: QueryOrigin | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRecord(_Record):
    """A topic was created or altered, or a partition was restarted or moved.

    Fields that are not listed have the meaning that they have in `TopicState`.

    Attributes:
        topic: The name of the topic.
        bases: {partition: first offset} of new partitions, including zeros.
        given_up: The loss with which a partition was restarted, if any.
        follows: Whether `TopicState.bases` of the topic is not empty. The form on disk then has
            `bases` before `config`, not after it.
    """

    kind: ClassVar[str] = "topic"
    topic: str
    id: str
    dirs: Mapping[int, int]
    config: Mapping[str, str]
    bases: Mapping[int, int]
    adopted: bool = False
    given_up: GivenUpRange | None = None
    follows: bool = False
    left: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        name: str,
        topic: TopicState,
        bases: Mapping[int, int],
        given_up: GivenUpRange | None = None,
    ) -> "TopicRecord":
        """Return the record that changes a topic to `topic`, with new partitions at `bases`."""
        return cls(
            topic=name, id=topic.id, dirs=topic.dirs, config=topic.config, bases=bases,
            adopted=topic.adopted, given_up=given_up, follows=bool(topic.bases),
            left=topic.left,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class DropRecord(_Record):
    """A topic was deleted, and can be restored for `delay_ms`; with 0 it can't be restored."""

    kind: ClassVar[str] = "drop"
    topic: str
    id: str
    delay_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class UndeleteRecord(_Record):
    """The deleted topic `id` was restored under the name `topic`."""

    kind: ClassVar[str] = "undelete"
    topic: str
    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeRecord(_Record):
    """The deleted topics `ids` can no longer be restored, so their data may be deleted."""

    kind: ClassVar[str] = "purge"
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRecord(_Record):
    """Log starts, or the starts of local segments, were raised.

    Attributes:
        starts: {partition: the new log start offset}.
        local_starts: {partition: the new start of the local segments}, if these were raised.
        given_up: The loss, if log starts were raised because segments were missing.
        begins_epoch: Whether the leader epoch was chosen for this record, so that no other copy of
            the log has this epoch.
    """

    kind: ClassVar[str] = "start"
    starts: Offsets
    local_starts: Offsets | None = None
    given_up: GivenUpRange | None = None
    begins_epoch: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetRecord(_Record):
    """Writers were reset and may commit again.

    `writers`: {writer: its new last micro-batch}. In records of older versions, this field is None:
    only `writer` may commit again, from `batch` on.
    """

    kind: ClassVar[str] = "reset"
    writer: str
    batch: int
    writers: Mapping[str, LastMicroBatch | None] | None = None
    abandoned: RangeSets | None = None

    @property
    def last_batches(self) -> dict[str, int]:
        """{writer: the last micro-batch that remains}, -1 for none."""
        if self.writers is None:
            return {self.writer: self.batch - 1}
        return {w: -1 if last is None else last.batch for w, last in self.writers.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptRecord(_Record):
    """A broker's directory was adopted, with all topics and records."""

    kind: ClassVar[str] = "adopt"
    topics: Mapping[str, TopicState]
    ends: Offsets
    starts: Offsets
    local_starts: Offsets | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRecord(AdoptRecord):
    """The complete state. The fields have the same names as the fields of `LogState`."""

    kind: ClassVar[str] = "snapshot"
    dropped: Offsets
    writers: Mapping[str, LastMicroBatch]
    origins: Mapping[str, QueryOrigin] | None = None
    idempotent: frozenset[TopicPartition] | None = None
    abandoned: RangeSets | None = None
    fork: ForkedFrom | None = None
    deleted: Mapping[str, DeletedTopic] = field(default_factory=dict)
    tails: Mapping[TopicPartition, int] | None = None
    lost: LostCommits | None = None


LedgerRecord: TypeAlias = (
    CommitRecord | AppendRecord | TopicRecord | DropRecord | UndeleteRecord | PurgeRecord
    | StartRecord | ResetRecord | SnapshotRecord | AdoptRecord
)  # fmt: skip


_LATER: Final = frozenset({"delay", "deleted"})


def encode(record: LedgerRecord) -> bytes:
    """Return a record's form on disk. Fields have the same order in all versions of sparklog."""
    fields = _fields(record)
    if not record.flushed:
        fields["flush"] = "none"
    fields.setdefault("time", record.time_ms)
    fields.setdefault("epoch", record.epoch)
    # The lowest version that suffices, so that older versions of sparklog can read other records.
    version = TIERED_VERSION if "local" in fields else FORMAT_VERSION
    if isinstance(record, UndeleteRecord | PurgeRecord) or not fields.keys().isdisjoint(_LATER):
        version = DELETED_VERSION
    document = {"v": version, "kind": record.kind, **fields}
    return json.dumps(document, separators=(",", ":")).encode()


def decode(raw: bytes | dict[str, Any], *, path: str, offset: int) -> LedgerRecord:
    """Parse a record's form on disk, or the parsed JSON object.

    Args:
        raw: The record.
        path: The ledger, for errors.
        offset: The record's position in the ledger, for errors.

    Raises:
        UnsupportedVersionError: A newer sparklog wrote the record.
        InvalidRecordError: The record is malformed. (A DataCorruptionError.)
    """
    try:
        fields = parse_json(raw) if isinstance(raw, bytes) else raw
        version = fields.get("v", FORMAT_VERSION)
        if version != FORMAT_VERSION:
            check_version(version, "the commit ledger", newest=DELETED_VERSION)
        kind = fields["kind"]
        if kind not in _DECODERS:
            raise ValueError(f"the kind {kind!r} is unknown")
        return _DECODERS[kind](fields)
    except UnsupportedVersionError:
        raise
    except _MALFORMED as error:
        reason = f"field {error} is missing" if isinstance(error, KeyError) else str(error)
        raise InvalidRecordError(
            f"this is not a ledger record ({reason})",
            path=path,
            first=offset,
            end=offset + 1,
        ) from error


# -- to disk


def _fields(record: LedgerRecord) -> dict[str, Any]:
    """Return the record's own fields, in their order on disk.

    Time and epoch are included only where the record's kind stores them before its other fields;
    otherwise the caller appends them.
    """
    # The order is a part of the form: where time and epoch stand tells the decoder whether the
    # caller chose them (`stamped`, `begins_epoch`) or the ledger added them at the end.
    match record:
        case AppendRecord():
            return _append_to_json(record)
        case TopicRecord():
            return _topic_to_json(record)
        case DropRecord():
            delay = {"delay": record.delay_ms} if record.delay_ms else {}
            return {"topic": record.topic, "id": record.id, **delay}
        case UndeleteRecord():
            return {"topic": record.topic, "id": record.id}
        case PurgeRecord():
            return {"ids": list(record.ids)}
        case StartRecord():
            fields = {"starts": _nested(record.starts), **_local(record.local_starts)}
            if record.given_up is not None:
                fields["given_up"] = _given_up_to_json(record.given_up)
            return fields | ({"epoch": record.epoch} if record.begins_epoch else {})
        case ResetRecord():
            fields = {"writer": record.writer, "batch": record.batch}
            if record.writers is not None:
                lasts = record.writers.items()
                fields["writers"] = {w: None if x is None else _last_to_json(x) for w, x in lasts}
            return fields | _abandoned(record.abandoned)
        case SnapshotRecord():
            return _snapshot_to_json(record)
        case AdoptRecord():
            return _layout_to_json(record)
        case _:
            assert_never(record)


def _append_to_json(record: AppendRecord) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if isinstance(record, CommitRecord):
        fields = {"writer": record.writer, "batch": record.batch, "fp": record.fingerprint}
        if record.origin is not None:
            fields["origin"] = record.origin.to_json()
    fields["ends"] = ends = _nested(record.ends)
    if record.crcs is not None:
        keys = [TopicPartition(topic, int(p)) for topic, ranges in ends.items() for p in ranges]
        fields["crcs"] = [record.crcs[key] for key in keys]
        if record.tails is not None:
            fields["tails"] = [record.tails[key] for key in keys]
    if record.source is not None:
        fields["source"] = record.source
    if record.app:
        fields["app"] = record.app
    if record.stamped:
        fields["time"] = record.time_ms
    if record.size_bytes is not None:
        fields["bytes"], fields["ms"] = record.size_bytes, record.duration_ms
    if record.idempotent:
        fields["idempotent"] = True
    return fields


def _topic_to_json(record: TopicRecord) -> dict[str, Any]:
    bases = {str(p): base for p, base in record.bases.items()}
    dirs = {str(p): number for p, number in sorted(record.dirs.items())}
    fields: dict[str, Any] = {"topic": record.topic, "id": record.id, "dirs": dirs}
    if record.adopted:
        fields["adopted"] = True
    if record.left:
        fields["left"] = {str(p): number for p, number in sorted(record.left.items())}
    if record.follows:
        fields["bases"] = bases
    fields |= {"config": record.config, "bases": bases}
    if record.given_up is not None:
        fields["given_up"] = _given_up_to_json(record.given_up)
    return fields


def _layout_to_json(record: AdoptRecord) -> dict[str, Any]:
    return {
        "topics": {name: topic.to_json() for name, topic in record.topics.items()},
        "ends": _nested(record.ends),
        "starts": _nested(record.starts),
        **_local(record.local_starts),
    }


def _snapshot_to_json(record: SnapshotRecord) -> dict[str, Any]:
    fields = _layout_to_json(record)
    fields["dropped"] = _nested(record.dropped)
    fields["writers"] = {w: _last_to_json(last) for w, last in record.writers.items()}
    if record.origins is not None:
        fields["origins"] = {w: origin.to_json() for w, origin in record.origins.items()}
    if record.idempotent is not None:
        fields["idempotent"] = sorted(record.idempotent)
    fields |= _abandoned(record.abandoned)
    if record.fork is not None:
        source = record.fork
        fields["fork"] = {"path": source.path, "offset": source.offset, "time": source.time_ms}
    if record.tails:
        fields["tails"] = _nested(record.tails)
    if record.lost is not None:
        offsets = _nested({key: list(spans) for key, spans in record.lost.offsets.items()})
        fields["lost"] = {"time": record.lost.time_ms, "offsets": offsets}
    if record.deleted:
        fields["deleted"] = {key: topic.to_json() for key, topic in record.deleted.items()}
    return fields


def _last_to_json(last: LastMicroBatch) -> list[Any]:
    ends = None if last.ends is None else _nested(last.ends)
    return [last.batch, last.fingerprint, last.time_ms, ends]


def _given_up_to_json(lost: GivenUpRange) -> dict[str, Any]:
    return {
        "topic": lost.topic, "partition": lost.partition, "first": lost.first, "end": lost.end,
        "directory": lost.directory, "why": lost.why,
    }  # fmt: skip


def _local(starts: Offsets | None) -> dict[str, Any]:
    return {"local": _nested(starts)} if starts else {}


def _abandoned(sets: RangeSets | None) -> dict[str, Any]:
    if sets is None:
        return {}
    return {"abandoned": _nested({key: list(sets[key]) for key in sorted(sets)})}


def _nested(values: Mapping[TopicPartition, _T]) -> dict[str, dict[str, _T]]:
    found: dict[str, dict[str, _T]] = {}
    for (topic, partition), value in values.items():
        found.setdefault(topic, {})[str(partition)] = value
    return found


# -- from disk


# Most records are commits, and opening a log decodes thousands of them: avoid calls here.


def _append_from_json(fields: dict[str, Any]) -> AppendRecord:
    time_ms, epoch = fields["time"], fields["epoch"]
    size_bytes, duration_ms = fields.get("bytes"), fields.get("ms")
    ends = _ranges(fields["ends"])
    if not type(time_ms) is type(epoch) is int:
        _check_numbers(time_ms, epoch)
    return AppendRecord(
        time_ms=time_ms,
        epoch=epoch,
        flushed=fields.get("flush") != "none",
        ends=ends,
        size_bytes=size_bytes,
        duration_ms=duration_ms,
        source=fields.get("source"),
        app=fields.get("app", ""),
        idempotent="idempotent" in fields,
        stamped=[*fields][-2] != "time",  # `time` was set before the ledger would set it
        crcs=dict(zip(ends, fields["crcs"], strict=True)) if "crcs" in fields else None,
        tails=dict(zip(ends, fields["tails"], strict=True)) if "tails" in fields else None,
    )


(
    _set_time_ms,
    _set_epoch,
    _set_flushed,
    _set_ends,
    _set_size_bytes,
    _set_duration_ms,
    _set_source,
    _set_app,
    _set_idempotent,
    _set_stamped,
    _set_crcs,
    _set_tails,
    _set_writer,
    _set_batch,
    _set_fingerprint,
    _set_origin,
) = (getattr(CommitRecord, item.name).__set__ for item in fields_of(CommitRecord))


def _commit_from_json(fields: dict[str, Any]) -> CommitRecord:
    writer, batch, fingerprint = fields["writer"], fields["batch"], fields["fp"]
    time_ms, epoch = fields["time"], fields["epoch"]
    if not type(batch) is type(time_ms) is type(epoch) is int:
        _check_numbers(batch, time_ms, epoch)
    if not type(writer) is type(fingerprint) is str:
        _check_texts(writer, fingerprint)
    record = object.__new__(CommitRecord)  # its constructor takes three times as long
    _set_time_ms(record, time_ms)
    _set_epoch(record, epoch)
    _set_flushed(record, fields.get("flush") != "none")
    ends = _ranges(fields["ends"])
    _set_ends(record, ends)
    _set_size_bytes(record, fields.get("bytes"))
    _set_duration_ms(record, fields.get("ms"))
    _set_source(record, fields.get("source"))
    _set_app(record, fields.get("app", ""))
    _set_idempotent(record, "idempotent" in fields)
    _set_stamped(record, [*fields][-2] != "time")
    crcs = dict(zip(ends, fields["crcs"], strict=True)) if "crcs" in fields else None
    _set_crcs(record, crcs)
    tails = dict(zip(ends, fields["tails"], strict=True)) if "tails" in fields else None
    _set_tails(record, tails)
    _set_writer(record, writer)
    _set_batch(record, batch)
    _set_fingerprint(record, fingerprint)
    _set_origin(record, QueryOrigin.from_json(fields["origin"]) if "origin" in fields else None)
    return record


def _topic_from_json(fields: dict[str, Any]) -> TopicRecord:
    topic = TopicState.from_json(fields)
    names = list(fields)
    _check_texts(fields["topic"])
    return TopicRecord(
        topic=fields["topic"],
        id=topic.id,
        dirs=topic.dirs,
        config=topic.config,
        bases=by_partition(fields["bases"]),
        adopted=topic.adopted,
        given_up=_given_up_from_json(fields),
        follows=names.index("bases") < names.index("config"),
        left=topic.left,
        **_common(fields),
    )


def _drop_from_json(fields: dict[str, Any]) -> DropRecord:
    _check_texts(fields["topic"], fields["id"])
    delay_ms = fields.get("delay", 0)
    _check_numbers(delay_ms)
    return DropRecord(topic=fields["topic"], id=fields["id"], delay_ms=delay_ms, **_common(fields))


def _undelete_from_json(fields: dict[str, Any]) -> UndeleteRecord:
    _check_texts(fields["topic"], fields["id"])
    return UndeleteRecord(topic=fields["topic"], id=fields["id"], **_common(fields))


def _purge_from_json(fields: dict[str, Any]) -> PurgeRecord:
    _check_texts(*fields["ids"])
    return PurgeRecord(ids=tuple(fields["ids"]), **_common(fields))


def _start_from_json(fields: dict[str, Any]) -> StartRecord:
    return StartRecord(
        starts=_offsets(fields["starts"]),
        local_starts=_optional(_offsets, fields, "local"),
        given_up=_given_up_from_json(fields),
        begins_epoch=next(reversed(fields)) != "epoch",
        **_common(fields),
    )


def _reset_from_json(fields: dict[str, Any]) -> ResetRecord:
    writers: dict[str, LastMicroBatch | None] | None = None
    if "writers" in fields:
        lasts = fields["writers"].items()
        writers = {w: None if last is None else _last(last) for w, last in lasts}
    _check_texts(fields["writer"])
    _check_numbers(fields["batch"])
    return ResetRecord(
        writer=fields["writer"],
        batch=fields["batch"],
        writers=writers,
        abandoned=_optional(_range_sets, fields, "abandoned"),
        **_common(fields),
    )


def _adopt_from_json(fields: dict[str, Any]) -> AdoptRecord:
    return AdoptRecord(**_layout(fields), **_common(fields))


def _snapshot_from_json(fields: dict[str, Any]) -> SnapshotRecord:
    return SnapshotRecord(
        dropped=_offsets(fields["dropped"]),
        writers={w: _last(last) for w, last in fields["writers"].items()},
        origins=_optional(_origins, fields, "origins"),
        idempotent=_optional(_partitions, fields, "idempotent"),
        abandoned=_optional(_range_sets, fields, "abandoned"),
        fork=_optional(_forked_from, fields, "fork"),
        deleted=_deleted(fields.get("deleted", {})),
        tails=_optional(_offsets, fields, "tails"),
        lost=_optional(_lost, fields, "lost"),
        **_layout(fields),
        **_common(fields),
    )


_DECODERS: Final[Mapping[str, Callable[[dict[str, Any]], LedgerRecord]]] = {
    "commit": _commit_from_json,
    "append": _append_from_json,
    "topic": _topic_from_json,
    "drop": _drop_from_json,
    "undelete": _undelete_from_json,
    "purge": _purge_from_json,
    "start": _start_from_json,
    "reset": _reset_from_json,
    "adopt": _adopt_from_json,
    "snapshot": _snapshot_from_json,
}


def _common(fields: dict[str, Any]) -> dict[str, Any]:
    time_ms, epoch = fields["time"], fields["epoch"]
    _check_numbers(time_ms, epoch)
    return {"time_ms": time_ms, "epoch": epoch, "flushed": fields.get("flush") != "none"}


def _layout(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        "topics": {name: TopicState.from_json(t) for name, t in fields["topics"].items()},
        "ends": _offsets(fields["ends"]),
        "starts": _offsets(fields["starts"]),
        "local_starts": _optional(_offsets, fields, "local"),
    }


def _optional(parse: Callable[[Any], _T], fields: dict[str, Any], name: str) -> _T | None:
    return parse(fields[name]) if name in fields else None


def _ranges(nested: Mapping[str, Mapping[str, Sequence[int]]]) -> dict[TopicPartition, OffsetRange]:
    found = {}
    for topic, ranges in nested.items():
        for partition, (first, end) in ranges.items():
            if not type(first) is type(end) is int:
                _check_numbers(first, end)
            found[_partition(topic, partition)] = _new_tuple(OffsetRange, (first, end))
    return found


_new_tuple: Final = tuple.__new__  # takes half the time of a NamedTuple's constructor


@lru_cache(maxsize=1 << 14)  # because every commit names the same partitions again
def _partition(topic: str, partition: str) -> TopicPartition:
    return TopicPartition(topic, int(partition))


def _range_sets(
    nested: Mapping[str, Mapping[str, Sequence[Sequence[int]]]],
) -> dict[TopicPartition, list[OffsetRange]]:
    return {
        TopicPartition(topic, int(partition)): [OffsetRange(first, end) for first, end in ranges]
        for topic, sets in nested.items()
        for partition, ranges in sets.items()
    }


def _offsets(nested: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, partition): offset
        for topic, offsets in nested.items()
        for partition, offset in by_partition(offsets).items()
    }


def _last(values: Sequence[Any]) -> LastMicroBatch:
    batch, fingerprint, time_ms, ends = values
    _check_numbers(batch, time_ms)
    _check_texts(fingerprint)
    return LastMicroBatch(batch, fingerprint, time_ms, None if ends is None else _ranges(ends))


def _origins(fields: dict[str, Any]) -> dict[str, QueryOrigin]:
    return {writer: QueryOrigin.from_json(origin) for writer, origin in fields.items()}


def _partitions(pairs: Sequence[tuple[str, int]]) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic, partition) for topic, partition in pairs)


def _deleted(fields: Mapping[str, Any]) -> dict[str, DeletedTopic]:
    return {topic_id: DeletedTopic.from_json(topic) for topic_id, topic in fields.items()}


def _lost(fields: dict[str, Any]) -> LostCommits:
    _check_numbers(fields["time"])
    return LostCommits(time_ms=fields["time"], offsets=_range_sets(fields["offsets"]))


def _forked_from(fields: dict[str, Any]) -> ForkedFrom:
    return ForkedFrom(fields["path"], fields["offset"], fields["time"])


def _given_up_from_json(fields: dict[str, Any]) -> GivenUpRange | None:
    if "given_up" not in fields:
        return None
    names = ("topic", "partition", "first", "end", "directory", "why")
    return GivenUpRange(**{name: fields["given_up"][name] for name in names})


def _check_numbers(*values: object) -> None:
    for value in values:
        if type(value) is not int:
            raise TypeError(f"expected a number, got {value!r}")


def _check_texts(*values: object) -> None:
    for value in values:
        if type(value) is not str:
            raise TypeError(f"expected a string, got {value!r}")
