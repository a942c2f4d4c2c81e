"""Encode values of `__remote_log_metadata`, byte for byte like Kafka.

    uvarint 1 (frame), uvarint key of the record's type, uvarint 0 (its version), the fields:
    0 segment   segment id, start i64, end i64 (inclusive), broker i32, max timestamp i64,
                event time i64, [leader epoch i32, offset i64], size i32, custom bytes, state i8,
                tag 0: txn_index_empty bool
    1 update    segment id, broker i32, event time i64, custom bytes, state i8
    2 deletion  topic partition, broker i32, event time i64, state i8
    topic partition: name, topic id (16 bytes), partition i32; segment id: that, then 16 bytes.

Big-endian; strings, bytes and lists are "compact" (uvarint length + 1, 0 is null) and every struct
ends with tagged fields; readers skip unknown tags.
Source: RemoteLogMetadataSerde and message/Remote*Record.json (Kafka 4.1).
"""

import enum
import struct
from dataclasses import dataclass
from typing import Final

from sparklog.common import TopicIdPartition
from sparklog.errors import DataCorruptionError, UnsupportedVersionError
from sparklog.format.checkpoint_files import topic_id_bytes, topic_id_text
from sparklog.tiered.remote_segment import RemoteSegment, SegmentState

BROKER: Final = -1
"""The broker id in records of sparklog, which is no broker."""

_FRAME: Final = 1
_VERSION: Final = 0
_TXN_INDEX_EMPTY: Final = 0  # a tag
_NUMBERS: Final = {kind: struct.Struct(f">{kind}") for kind in "biq"}


class PartitionDeleteState(enum.IntEnum):
    """The progress of deleting a partition's copies. Source: RemotePartitionDeleteState."""

    MARKED = 0
    STARTED = 1
    FINISHED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRecord:
    """A copy with all fields (RemoteLogSegmentMetadataRecord).

    Sparklog writes it in COPY_STARTED.
    """

    segment: RemoteSegment
    broker: int = BROKER
    custom: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateRecord:
    """A copy's next state (RemoteLogSegmentMetadataUpdateRecord), reached at `time_ms`."""

    topic: str
    topic_id: str
    partition: int
    id: str
    state: SegmentState
    time_ms: int
    broker: int = BROKER
    custom: bytes | None = None

    @property
    def key(self) -> TopicIdPartition:
        return TopicIdPartition(self.topic_id, self.partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDeleteRecord:
    """A partition without copies after a deletion (RemotePartitionDeleteMetadataRecord)."""

    topic: str
    topic_id: str
    partition: int
    state: PartitionDeleteState
    time_ms: int
    broker: int = BROKER

    @property
    def key(self) -> TopicIdPartition:
        return TopicIdPartition(self.topic_id, self.partition)


MetadataRecord = SegmentRecord | UpdateRecord | PartitionDeleteRecord
_KEYS: Final = {SegmentRecord: 0, UpdateRecord: 1, PartitionDeleteRecord: 2}


def update_of(segment: RemoteSegment) -> UpdateRecord:
    """Return the record that changes a known copy to the state of `segment`."""
    return UpdateRecord(
        topic=segment.topic,
        topic_id=segment.topic_id,
        partition=segment.partition,
        id=segment.id,
        state=segment.state,
        time_ms=segment.time_ms,
    )


# --- writing ---------------------------------------------------------------------------------


def to_bytes(record: MetadataRecord) -> bytes:
    """Encode a record like Kafka's serde."""
    out = bytearray()
    for number in (_FRAME, _KEYS[type(record)], _VERSION):
        _put_uvarint(out, number)
    match record:
        case SegmentRecord():
            _put_segment(out, record)
        case UpdateRecord():
            _put_segment_id(out, record, record.id)
            _put(out, "i", record.broker)
            _put(out, "q", record.time_ms)
            _put_bytes(out, record.custom)
            _put(out, "b", record.state)
            out.append(0)
        case PartitionDeleteRecord():
            _put_partition(out, record)
            _put(out, "i", record.broker)
            _put(out, "q", record.time_ms)
            _put(out, "b", record.state)
            out.append(0)
    return bytes(out)


def _put_segment(out: bytearray, record: SegmentRecord) -> None:
    segment = record.segment
    _put_segment_id(out, segment, segment.id)
    _put(out, "q", segment.base)
    _put(out, "q", segment.end - 1)
    _put(out, "i", record.broker)
    _put(out, "q", segment.max_timestamp)
    _put(out, "q", segment.time_ms)
    _put_uvarint(out, len(segment.epochs) + 1)
    for epoch, offset in segment.epochs:
        _put(out, "i", epoch)
        _put(out, "q", offset)
        out.append(0)
    _put(out, "i", segment.size)
    _put_bytes(out, record.custom)
    _put(out, "b", segment.state)
    if segment.has_txn_index:
        out.append(0)
    else:
        out += bytes((1, _TXN_INDEX_EMPTY, 1, 1))  # a single tag: its number, size and value


def _put_segment_id(out: bytearray, of: RemoteSegment | UpdateRecord, segment_id: str) -> None:
    _put_partition(out, of)
    out += topic_id_bytes(segment_id)
    out.append(0)


def _put_partition(
    out: bytearray, of: RemoteSegment | UpdateRecord | PartitionDeleteRecord
) -> None:
    _put_bytes(out, of.topic.encode())
    out += topic_id_bytes(of.topic_id)
    _put(out, "i", of.partition)
    out.append(0)


def _put(out: bytearray, kind: str, value: int) -> None:
    out += _NUMBERS[kind].pack(value)


def _put_bytes(out: bytearray, data: bytes | None) -> None:
    _put_uvarint(out, 0 if data is None else len(data) + 1)
    out += data or b""


def _put_uvarint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


# --- reading ---------------------------------------------------------------------------------


def parse(raw: bytes, *, path: str) -> MetadataRecord:
    """Decode a record.

    Raises:
        DataCorruptionError: The bytes are not a record.
        UnsupportedVersionError: Kafka 4.1 doesn't have this type or version of a record.
    """
    source = _Source(raw)
    try:
        frame, kind, version = source.uvarint(), source.uvarint(), source.uvarint()
        if (frame, version) != (_FRAME, _VERSION) or kind not in _KEYS.values():
            raise UnsupportedVersionError(
                f"{path}: a record has frame {frame}, type {kind}, version {version}; this "
                "sparklog reads frame 1, types 0 to 2, version 0: use a newer sparklog",
                path=path,
            )
        record = (_segment, _update, _partition_delete)[kind](source)
        if source.left:
            raise ValueError(f"the record has {source.left} bytes too many")
    except UnsupportedVersionError:
        raise
    except (ValueError, IndexError, struct.error) as error:
        raise DataCorruptionError(
            f"a record of a remote segment can't be decoded ({error}); rebuild the metadata from "
            "the bucket",
            path=path,
        ) from error
    return record


class _Source:
    """Reads the fields of an encoded record, one after the other.

    ValueError, IndexError or struct.error is raised at the end of the bytes.
    """

    def __init__(self, raw: bytes) -> None:
        self._raw, self._at = raw, 0

    @property
    def left(self) -> int:
        """Number of unread bytes."""
        return len(self._raw) - self._at

    def uvarint(self) -> int:
        value = shift = 0
        while True:
            byte = self._raw[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 28:
                raise ValueError("an unsigned varint has more than 5 bytes")

    def number(self, kind: str) -> int:
        value = _NUMBERS[kind].unpack_from(self._raw, self._at)[0]
        self._at += _NUMBERS[kind].size
        return int(value)

    def take(self, size: int) -> bytes:
        if size > self.left:
            raise ValueError(f"a field has {size} bytes, but only {self.left} are left")
        self._at += size
        return self._raw[self._at - size : self._at]

    def nullable(self) -> bytes | None:
        size = self.uvarint()
        return None if not size else self.take(size - 1)

    def text(self) -> str:
        raw = self.nullable()
        if raw is None:
            raise ValueError("the topic's name is null")
        return raw.decode()

    def tags(self) -> dict[int, bytes]:
        return {self.uvarint(): self.take(self.uvarint()) for _ in range(self.uvarint())}


def _segment(source: _Source) -> SegmentRecord:
    topic, topic_id, partition = _partition(source)
    segment_id = _segment_id(source)
    base, last = source.number("q"), source.number("q")
    broker = source.number("i")
    max_timestamp, time_ms = source.number("q"), source.number("q")
    epochs = []
    for _ in range(source.uvarint() - 1):
        epochs.append((source.number("i"), source.number("q")))
        source.tags()
    size, custom, state = source.number("i"), source.nullable(), source.number("b")
    is_empty = source.tags().get(_TXN_INDEX_EMPTY, b"\0") != b"\0"
    segment = RemoteSegment(
        topic=topic,
        topic_id=topic_id,
        partition=partition,
        id=segment_id,
        base=base,
        end=last + 1,
        max_timestamp=max_timestamp,
        size=size,
        epochs=tuple(epochs),
        state=SegmentState(state),
        time_ms=time_ms,
        has_txn_index=not is_empty,
    )
    return SegmentRecord(segment=segment, broker=broker, custom=custom)


def _update(source: _Source) -> UpdateRecord:
    topic, topic_id, partition = _partition(source)
    segment_id, broker = _segment_id(source), source.number("i")
    time_ms, custom, state = source.number("q"), source.nullable(), source.number("b")
    source.tags()
    return UpdateRecord(
        topic=topic,
        topic_id=topic_id,
        partition=partition,
        id=segment_id,
        state=SegmentState(state),
        time_ms=time_ms,
        broker=broker,
        custom=custom,
    )


def _partition_delete(source: _Source) -> PartitionDeleteRecord:
    topic, topic_id, partition = _partition(source)
    broker, time_ms, state = source.number("i"), source.number("q"), source.number("b")
    source.tags()
    return PartitionDeleteRecord(
        topic=topic,
        topic_id=topic_id,
        partition=partition,
        state=PartitionDeleteState(state),
        time_ms=time_ms,
        broker=broker,
    )


def _partition(source: _Source) -> tuple[str, str, int]:
    partition = source.text(), topic_id_text(source.take(16)), source.number("i")
    source.tags()
    return partition


def _segment_id(source: _Source) -> str:
    segment_id = topic_id_text(source.take(16))
    source.tags()
    return segment_id
