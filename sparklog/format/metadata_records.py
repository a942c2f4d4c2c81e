"""Metadata records of a KRaft cluster: the values in `__cluster_metadata-0` and its snapshots.

A value is a frame version (1), the record's api key and version as unsigned varints, then the
message: big-endian numbers, compact strings and arrays (length + 1 as an unsigned varint), 16 bytes
per UUID, tagged fields at the end. Only records about topics are decoded. All others are
`OtherRecord`, and are never written. Source: MetadataRecordSerde, AbstractApiMessageSerde,
metadata/*Record.json (Kafka 4.1).
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, TypeAlias

from sparklog.format.checkpoint_files import topic_id_bytes, topic_id_text

TOPIC_RESOURCE: Final = 2
"""Resource type of a topic's configs. Source: ConfigResource.Type."""

_FRAME_VERSION: Final = 1
_NO_LEADER_CHANGE: Final = -2
_SHORT: Final = struct.Struct(">h")
_INT: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")


class ApiKey(IntEnum):
    """The type of a record. Source: MetadataRecordType."""

    REGISTER_BROKER = 0
    UNREGISTER_BROKER = 1
    TOPIC = 2
    PARTITION = 3
    CONFIG = 4
    PARTITION_CHANGE = 5
    REMOVE_TOPIC = 9
    FEATURE_LEVEL = 12
    PRODUCER_IDS = 15
    BEGIN_TRANSACTION = 23
    END_TRANSACTION = 24
    ABORT_TRANSACTION = 25
    REGISTER_CONTROLLER = 27


@dataclass(frozen=True, slots=True)
class FeatureLevelRecord:
    """The level to which a feature of the cluster is set, such as metadata.version."""

    name: str
    level: int


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """A topic: its name and its id. Written when the topic is created, and in snapshots."""

    name: str
    topic_id: str


@dataclass(frozen=True, slots=True)
class RemoveTopicRecord:
    """The deletion of a topic with all partitions."""

    topic_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRecord:
    """The complete state of a partition. Written when the partition is created, and in snapshots.

    `directories` has the id of the log dir of each replica, in the order of `replicas`.
    """

    partition: int
    topic_id: str
    replicas: Sequence[int]
    isr: Sequence[int]
    leader: int
    leader_epoch: int
    partition_epoch: int
    directories: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionChangeRecord:
    """A change of a partition; unchanged fields are None.

    A record with a leader increments the partition's leader epoch.
    """

    partition: int
    topic_id: str
    leader: int | None = None
    replicas: Sequence[int] | None = None
    directories: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class ConfigRecord:
    """A config of a resource, such as a topic. A `value` of None removes the config."""

    resource_type: int
    resource_name: str
    name: str
    value: str | None


@dataclass(frozen=True, slots=True)
class ProducerIdsRecord:
    """The assignment of a block of producer ids to a broker.

    `next_producer_id` is the first id that is not assigned yet.
    """

    broker_id: int
    broker_epoch: int
    next_producer_id: int


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """The registration or removal of a broker or controller; `key` says which of them."""

    key: ApiKey
    node_id: int


@dataclass(frozen=True, slots=True)
class OtherRecord:
    """A record of a type that is not decoded. `raw` is the complete value of the record."""

    key: int
    raw: bytes = field(repr=False)


MetadataRecord: TypeAlias = (
    FeatureLevelRecord
    | TopicRecord
    | RemoveTopicRecord
    | PartitionRecord
    | PartitionChangeRecord
    | ConfigRecord
    | ProducerIdsRecord
    | NodeRecord
    | OtherRecord
)
_NODES: Final = frozenset(
    {ApiKey.REGISTER_BROKER, ApiKey.UNREGISTER_BROKER, ApiKey.REGISTER_CONTROLLER}
)


def encode_metadata(record: MetadataRecord) -> bytes:
    """Encode a metadata record as the value of a log record.

    Raises:
        ValueError: Records of this kind are only read.
    """
    match record:
        case OtherRecord():
            return record.raw
        case FeatureLevelRecord():
            body = _text(record.name) + _SHORT.pack(record.level)
            return _framed(ApiKey.FEATURE_LEVEL, 0, body)
        case TopicRecord():
            body = _text(record.name) + topic_id_bytes(record.topic_id)
            return _framed(ApiKey.TOPIC, 0, body)
        case RemoveTopicRecord():
            return _framed(ApiKey.REMOVE_TOPIC, 0, topic_id_bytes(record.topic_id))
        case ConfigRecord():
            value = b"\0" if record.value is None else _text(record.value)
            body = bytes([record.resource_type]) + _text(record.resource_name)
            return _framed(ApiKey.CONFIG, 0, body + _text(record.name) + value)
        case ProducerIdsRecord():
            body = _INT.pack(record.broker_id) + _LONG.pack(record.broker_epoch)
            return _framed(ApiKey.PRODUCER_IDS, 0, body + _LONG.pack(record.next_producer_id))
        case PartitionRecord():
            return _framed(ApiKey.PARTITION, 1, _partition(record))
    raise ValueError(f"a {type(record).__name__} can be read, but not written")


def _partition(record: PartitionRecord) -> bytes:
    moving = _numbers(()) + _numbers(())  # replicas that are removed, and added
    return (
        _INT.pack(record.partition)
        + topic_id_bytes(record.topic_id)
        + _numbers(record.replicas)
        + _numbers(record.isr)
        + moving
        + _INT.pack(record.leader)
        + _INT.pack(record.leader_epoch)
        + _INT.pack(record.partition_epoch)
        + _uvarint(len(record.directories) + 1)
        + b"".join(map(topic_id_bytes, record.directories))
    )


def decode_metadata(value: bytes) -> MetadataRecord:
    """Decode the metadata record in the value of a log record.

    Raises:
        ValueError: The value is invalid.
    """
    reader = _Reader(value)
    frame, key, version = reader.uvarint(), reader.uvarint(), reader.uvarint()
    if frame != _FRAME_VERSION:
        raise ValueError(f"frame version {frame} is unknown")
    match key:
        case ApiKey.FEATURE_LEVEL:
            return FeatureLevelRecord(reader.text(), reader.short_number())
        case ApiKey.TOPIC:
            return TopicRecord(reader.text(), reader.uuid())
        case ApiKey.REMOVE_TOPIC:
            return RemoveTopicRecord(reader.uuid())
        case ApiKey.CONFIG:
            kind, resource = reader.byte(), reader.text()
            return ConfigRecord(kind, resource, reader.text(), reader.nullable())
        case ApiKey.PRODUCER_IDS:
            return ProducerIdsRecord(reader.number(), reader.long_number(), reader.long_number())
        case ApiKey.PARTITION:
            return _read_partition(reader, version)
        case ApiKey.PARTITION_CHANGE:
            return _read_change(reader)
    if key in _NODES:
        return NodeRecord(ApiKey(key), reader.number())
    return OtherRecord(key, value)


def _read_partition(reader: "_Reader", version: int) -> PartitionRecord:
    partition, topic_id = reader.number(), reader.uuid()
    replicas, isr = reader.numbers(), reader.numbers()
    reader.numbers(), reader.numbers()  # replicas that are removed, and added
    leader, leader_epoch, partition_epoch = reader.number(), reader.number(), reader.number()
    return PartitionRecord(
        partition=partition, topic_id=topic_id, replicas=replicas, isr=isr, leader=leader,
        leader_epoch=leader_epoch, partition_epoch=partition_epoch,
        directories=reader.uuids() if version > 0 else (),  # since KIP-858
    )  # fmt: skip


def _read_change(reader: "_Reader") -> PartitionChangeRecord:
    partition, topic_id = reader.number(), reader.uuid()
    tags = reader.tags()
    leader = _INT.unpack(tags[1])[0] if 1 in tags else _NO_LEADER_CHANGE
    return PartitionChangeRecord(
        partition=partition,
        topic_id=topic_id,
        # In both arrays below, a single zero byte means null: the field is unchanged.
        leader=None if leader == _NO_LEADER_CHANGE else leader,
        replicas=_Reader(tags[2]).numbers() if tags.get(2, b"\0") != b"\0" else None,
        directories=_Reader(tags[8]).uuids() if tags.get(8, b"\0") != b"\0" else None,
    )


class _Reader:
    """Reads the fields of a message in order. Methods raise ValueError at the end of the bytes."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, size: int) -> bytes:
        if not 0 <= size <= len(self._data) - self._at:
            raise ValueError(
                f"a field of {size} bytes at byte {self._at} exceeds the {len(self._data)} bytes "
                "of the record"
            )
        self._at += size
        return self._data[self._at - size : self._at]

    def uvarint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise ValueError("a varint has more than 5 bytes")

    def byte(self) -> int:
        return self.take(1)[0]

    def short_number(self) -> int:
        return int(_SHORT.unpack(self.take(2))[0])

    def number(self) -> int:
        return int(_INT.unpack(self.take(4))[0])

    def long_number(self) -> int:
        return int(_LONG.unpack(self.take(8))[0])

    def uuid(self) -> str:
        return topic_id_text(self.take(16))

    def nullable(self) -> str | None:
        size = self.uvarint()
        return None if size == 0 else self.take(size - 1).decode()

    def text(self) -> str:
        value = self.nullable()
        if value is None:
            raise ValueError("a string field is null, but must not be null")
        return value

    def numbers(self) -> tuple[int, ...]:
        count = self.uvarint() - 1
        return struct.unpack(f">{max(count, 0)}i", self.take(4 * max(count, 0)))

    def uuids(self) -> tuple[str, ...]:
        return tuple(self.uuid() for _ in range(self.uvarint() - 1))

    def tags(self) -> dict[int, bytes]:
        fields: dict[int, bytes] = {}
        for _ in range(self.uvarint()):
            tag = self.uvarint()
            fields[tag] = self.take(self.uvarint())
        return fields


def _framed(key: ApiKey, version: int, body: bytes) -> bytes:
    """Return the complete value of a record with the message `body` and no tagged fields."""
    return bytes([_FRAME_VERSION, key, version]) + body + b"\0"


def _text(text: str) -> bytes:
    data = text.encode()
    return _uvarint(len(data) + 1) + data


def _numbers(numbers: Sequence[int]) -> bytes:
    return _uvarint(len(numbers) + 1) + struct.pack(f">{len(numbers)}i", *numbers)


def _uvarint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
