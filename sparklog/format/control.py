"""Control batches: the markers that end transactions. Markers have offsets; readers skip them.

Also encodes the KRaft control batches at the start and the end of a metadata snapshot.

A control batch has a single uncompressed record. Key: i16 version 0, i16 type; value: i16 version
0, i32 coordinator epoch. Source: ControlRecordType.java, EndTransactionMarker.java (Kafka 1eb7644).
"""

import struct
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

from sparklog.errors import DataCorruptionError
from sparklog.format.batch import (
    CONTROL,
    HEADER_SIZE,
    BatchHeader,
    Buffer,
    encode_one,
    seal,
    unpack_header,
)

_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")
_SNAPSHOT_HEADER, _SNAPSHOT_FOOTER = 3, 4


class ControlType(IntEnum):
    """The types of control records that end a transaction.

    Types 2 to 6 belong to KRaft. Types other than those of this enum are ignored, as in Kafka.
    """

    ABORT = 0
    COMMIT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """A transaction marker: the control record that ends a producer's transaction.

    Attributes:
        type: COMMIT or ABORT.
        producer_id: The producer.
        producer_epoch: The epoch of the producer.
        coordinator_epoch: The epoch of the transaction coordinator.
        offset: The offset of the marker.
        timestamp: The timestamp of the marker (ms).
    """

    type: ControlType
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    offset: int
    timestamp: int


def read_marker(
    buf: Buffer, at: int, header: BatchHeader, *, path: str, position: int = 0
) -> Marker | None:
    """Return the marker in the control batch at byte `at`, or None for other control records.

    `position` is the file position of buf[0].

    Raises:
        DataCorruptionError: The batch does not contain exactly one complete control record.
    """
    try:
        key, value = _record(memoryview(buf)[at + HEADER_SIZE : at + header.size])
        version, kind = _KEY.unpack_from(key)
        # As Kafka: a higher version is read as the known one.
        if version < 0:
            raise ValueError(f"the key has version {version}")
        if kind not in (ControlType.ABORT, ControlType.COMMIT):
            return None
        value_version, coordinator_epoch = _VALUE.unpack_from(value)
        if value_version < 0:
            raise ValueError(f"the value has version {value_version}")
    except (ValueError, IndexError, struct.error) as error:
        raise DataCorruptionError(
            f"the control record is invalid: {error}", path=path, position=position + at
        ) from None
    return Marker(
        type=ControlType(kind),
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        coordinator_epoch=coordinator_epoch,
        offset=header.base_offset,
        timestamp=header.max_timestamp,
    )


def snapshot_header(*, timestamp: int) -> bytearray:
    """Return the control batch at the start of a snapshot, at offset 0.

    Source: SnapshotHeaderRecord.json.
    """
    return _control(_SNAPSHOT_HEADER, struct.pack(">hqb", 0, 0, 0), timestamp)


def snapshot_footer(*, timestamp: int) -> bytearray:
    """Return the control batch that ends a snapshot, at offset 0.

    Source: SnapshotFooterRecord.json.
    """
    return _control(_SNAPSHOT_FOOTER, struct.pack(">hb", 0, 0), timestamp)


def _control(kind: int, value: bytes, timestamp: int) -> bytearray:
    batch = encode_one(_KEY.pack(0, kind), value, timestamp=timestamp)
    header = replace(unpack_header(batch, 0), attributes=CONTROL)
    batch[:HEADER_SIZE] = header.pack()
    seal(batch)
    return batch


def _record(data: memoryview) -> tuple[memoryview, memoryview]:
    """Return the key and the value of the only record in `data`."""
    length, at = _varint(data, 0)
    if length != len(data) - at:
        raise ValueError(f"the record length is {length}, but {len(data) - at} bytes are left")
    at += 1  # attributes
    _, at = _varint(data, at)  # timestamp delta
    _, at = _varint(data, at)  # offset delta
    fields = []
    for _ in range(2):
        size, at = _varint(data, at)
        if not 0 <= size <= len(data) - at:
            raise ValueError(f"a field has an invalid size of {size} bytes")
        fields.append(data[at : at + size])
        at += size
    return fields[0], fields[1]


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
    raise ValueError("a varint has more than 10 bytes")
