"""Reads a batch record by record, exactly as Kafka's classes do, including damaged records.

This slow path is for transaction markers, batches of magic 0 and 1, and batches that the engine's
reader refuses but Kafka's tool prints. `records.RecordLines` handles all other batches.

Source: DefaultRecordBatch, DefaultRecord, AbstractLegacyRecordBatch, LegacyRecord,
ControlRecordType, EndTransactionMarker (Kafka 4.1).
"""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from crc32c import crc32c

from sparklog.errors import DataCorruptionError
from sparklog.format import legacy
from sparklog.format.batch import (
    CODEC_MASK,
    CONTROL,
    CRC_START,
    DELETE_HORIZON,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    MAGIC,
    SEQUENCE_MAX,
    unpack_header,
)
from sparklog.format.compression import Codec, decompress

CREATE_TIME: Final = "CreateTime"
APPEND_TIME: Final = "LogAppendTime"
NO_TIME: Final = "NoTimestampType"
_CONTROL_NAMES: Final = {2: "LEADER_CHANGE"}
_LEGACY: Final = struct.Struct(">qiIbb")
_LEGACY_MIN: Final = {0: 26, 1: 34}  # bytes of an entry with null key and value
_TIME: Final = struct.Struct(">q")


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpedRecord:
    """A record that Kafka's tool prints.

    Attributes:
        timestamp: The timestamp in ms.
        note: Extra output for records of old message formats.
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    sequence: int = -1
    header_keys: tuple[bytes, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpedBatch:
    """The fields of a batch header that Kafka's tool prints.

    Attributes:
        data: The entire batch.
        position: The position of the batch in the file.
    """

    data: memoryview
    path: str
    position: int
    magic: int
    last_offset: int
    max_timestamp: int
    time_type: str
    codec: Codec
    crc: int
    is_valid: bool
    base_offset: int = -1
    count: int = 0
    base_sequence: int = -1
    last_sequence: int = -1
    producer_id: int = -1
    producer_epoch: int = -1
    leader_epoch: int = -1
    base_timestamp: int = -1
    attributes: int = 0

    @property
    def is_control(self) -> bool:
        return self.magic >= MAGIC and bool(self.attributes & CONTROL)

    @property
    def delete_horizon_ms(self) -> int | None:
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None

    def records(self) -> Iterator[DumpedRecord]:
        """Yield the records.

        Raises:
            DataCorruptionError: A record is damaged, so Kafka's reader would throw here.
        """
        try:
            if self.magic >= MAGIC:
                yield from _records(self)
            else:
                yield from _legacy_records(self)
        except (IndexError, ValueError, struct.error) as error:
            raise self.damage(f"a record is damaged: {error}") from None

    def marker(self, record: DumpedRecord) -> str:
        """Return the text that Kafka's tool prints for a control record.

        Raises:
            DataCorruptionError: The control record is damaged, or belongs to KRaft's metadata log.
        """
        try:
            return _marker(record)
        except (ValueError, struct.error) as error:
            raise self.damage(f"a control record is damaged: {error}") from None

    def damage(self, reason: str) -> DataCorruptionError:
        """Return an error about this batch."""
        return DataCorruptionError(reason, path=self.path, position=self.position)


def read_batch(data: memoryview, ahead: bytes, *, path: str, position: int) -> DumpedBatch:
    """Read the header of the batch with the bytes `data`.

    Args:
        data: The bytes of the batch.
        ahead: The first 61 bytes from the batch's position. For a shorter batch they include bytes
            after the batch, because Kafka always reads 61 bytes.
        path: The file, for error messages.
        position: The position of the batch in the file.

    Raises:
        DataCorruptionError: The header is damaged, so Kafka's tool would throw here.
    """
    # Java's byte is signed: a damaged magic above 127 is negative, and takes the legacy path.
    magic = data[16] - 256 if data[16] > 127 else data[16]
    if magic < MAGIC:
        return _read_legacy(data, magic, path=path, position=position)
    if len(ahead) < HEADER_SIZE:
        raise DataCorruptionError(
            "the file ends within a batch header", path=path, position=position
        )
    header = unpack_header(ahead, 0)
    append_time = bool(header.attributes & LOG_APPEND_TIME)
    # A damaged length may be shorter than the header. There are no bytes for the CRC then.
    valid = len(data) >= HEADER_SIZE and crc32c(data[CRC_START:]) == header.crc
    return DumpedBatch(
        data=data,
        path=path,
        position=position,
        magic=magic,
        base_offset=header.base_offset,
        # Python's integers don't overflow as Java's do; damaged headers must print Kafka's numbers.
        last_offset=_long(header.base_offset + header.last_offset_delta),
        count=header.count,
        base_sequence=header.base_sequence,
        last_sequence=last_sequence(header.base_sequence, header.last_offset_delta),
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        leader_epoch=header.leader_epoch,
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp,
        attributes=header.attributes,
        time_type=APPEND_TIME if append_time else CREATE_TIME,
        codec=_codec(header.attributes, path, position),
        crc=header.crc,
        is_valid=valid,
    )


def _codec(attributes: int, path: str, position: int) -> Codec:
    number = attributes & CODEC_MASK
    if number > max(Codec):
        raise DataCorruptionError(f"codec {number} is unknown", path=path, position=position)
    return Codec(number)


def _long(value: int) -> int:
    """Return a value as a signed 64-bit integer (two's complement)."""
    return ((value + (1 << 63)) & ((1 << 64) - 1)) - (1 << 63)


def _int(value: int) -> int:
    """Return a value as a signed 32-bit integer (two's complement)."""
    return ((value + (1 << 31)) & ((1 << 32) - 1)) - (1 << 31)


def last_sequence(base: int, delta: int) -> int:
    """Return the last sequence of a batch. Source: DefaultRecordBatch.incrementSequence."""
    if base == -1:
        return -1
    if base > _int(SEQUENCE_MAX - delta):
        return _int(delta - (SEQUENCE_MAX - base) - 1)
    return _int(base + delta)


# --- magic 2 ---------------------------------------------------------------------------------


def _records(batch: DumpedBatch) -> Iterator[DumpedRecord]:
    if batch.count < 0:
        raise ValueError(f"the batch header declares {batch.count} records")
    if not batch.count:
        return
    packed = batch.data[HEADER_SIZE:]
    plain = decompress(batch.codec, packed, path=batch.path, position=batch.position)
    reader = _Reader(memoryview(plain).cast("B"))
    # Kafka decodes all records of a compressed batch before it prints the first, so damage in the
    # last record suppresses the lines of all records of the batch.
    made = (_record(reader, batch) for _ in range(batch.count))
    yield from made if batch.codec == Codec.NONE else list(made)
    if reader.left:
        raise ValueError(f"{reader.left} bytes are left over after {batch.count} records")


def _record(reader: "_Reader", batch: DumpedBatch) -> DumpedRecord:
    size = reader.varint(5)
    if not 0 <= size <= reader.left:
        raise ValueError(f"a record declares {size} bytes, but {reader.left} are left")
    body = _Reader(reader.take(size))
    body.take(1)  # attributes
    timestamp = _long(batch.base_timestamp + body.varint(10))
    if batch.time_type == APPEND_TIME:
        timestamp = batch.max_timestamp
    delta = body.varint(5)
    key, value = body.field(), body.field()
    count = body.varint(5)
    if not 0 <= count <= body.left:
        raise ValueError(f"a record declares {count} headers, but only {body.left} bytes are left")
    names = []
    for _ in range(count):
        name = body.field()
        if name is None:
            raise ValueError("a header has no key")
        names.append(name)
        body.field()
    if body.left:
        raise ValueError(f"{body.left} bytes are left over in a record")
    return DumpedRecord(
        offset=_long(batch.base_offset + delta),
        timestamp=timestamp,
        key=key,
        value=value,
        sequence=last_sequence(batch.base_sequence, delta) if batch.base_sequence >= 0 else -1,
        header_keys=tuple(names),
    )


def _marker(record: DumpedRecord) -> str:
    """Return the text of a control record. KRaft's control records are not decoded."""
    version, kind = struct.unpack_from(">hh", _present(record.key))
    if version < 0:
        raise ValueError(f"the control record has the unknown version {version}")
    if kind in (0, 1):
        value_version, epoch = struct.unpack_from(">hi", _present(record.value))
        if value_version < 0:
            raise ValueError(f"the transaction marker has the unknown version {value_version}")
        name = "COMMIT" if kind else "ABORT"
        return f" endTxnMarker: {name} coordinatorEpoch: {epoch}"
    if kind in range(3, 7):
        raise ValueError(
            f"control records of type {kind} belong to KRaft's metadata log; read it with "
            "kafka-dump-log"
        )
    return f" controlType: {_CONTROL_NAMES.get(kind, 'UNKNOWN')}({kind})"


def _present(data: bytes | None) -> bytes:
    if data is None:
        raise ValueError("a control record has no key or no value")
    return data


class _Reader:
    """Reads the fields of a buffer in sequence.

    Raises:
        IndexError: The buffer ends within a number.
        ValueError: A field is longer than the rest of the buffer, or a number is too long.
    """

    def __init__(self, data: memoryview) -> None:
        self._data, self._at = data, 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, size: int) -> memoryview:
        if size > self.left:
            raise ValueError(f"a field declares {size} bytes, but {self.left} are left")
        self._at += size
        return self._data[self._at - size : self._at]

    def field(self) -> bytes | None:
        size = self.varint(5)
        return None if size < 0 else bytes(self.take(size))

    def varint(self, most: int) -> int:
        """Read a zig-zag number; `most` is 5 for an int32, 10 for an int64."""
        bits = 0
        for shift in range(0, 7 * most, 7):
            byte = self._data[self._at]
            self._at += 1
            bits |= (byte & 0x7F) << shift
            if byte < 0x80:
                bits &= (1 << (32 if most == 5 else 64)) - 1
                return (bits >> 1) ^ -(bits & 1)
        raise ValueError(f"a varint has more than {most} bytes")


# --- magic 0 and 1 ---------------------------------------------------------------------------


def _read_legacy(data: memoryview, magic: int, *, path: str, position: int) -> DumpedBatch:
    least = _LEGACY_MIN.get(magic)
    if least is None or len(data) < least:
        what = "is unknown" if least is None else f"in {len(data)} bytes can't be"
        raise DataCorruptionError(f"magic {magic} {what}", path=path, position=position)
    offset, _, crc, _, attributes = _LEGACY.unpack_from(data)
    return DumpedBatch(
        data=data,
        path=path,
        position=position,
        magic=magic,
        last_offset=offset,
        max_timestamp=_TIME.unpack_from(data, _LEGACY.size)[0] if magic else -1,
        time_type=_legacy_time_type(magic, attributes),
        codec=_codec(attributes, path, position),
        crc=crc,
        is_valid=zlib.crc32(data[16:]) == crc,
        attributes=attributes,
    )


def _legacy_time_type(magic: int, attributes: int) -> str:
    if magic == 0:
        return NO_TIME
    return APPEND_TIME if attributes & LOG_APPEND_TIME else CREATE_TIME


def _legacy_records(batch: DumpedBatch) -> Iterator[DumpedRecord]:
    for entry in legacy.read_messages(batch.data, path=batch.path, position=batch.position):
        append_time = batch.time_type == APPEND_TIME
        crc = _LEGACY.unpack_from(entry.entry)[2]
        valid = zlib.crc32(entry.entry[16:]) == crc
        yield DumpedRecord(
            offset=entry.offset,
            timestamp=batch.max_timestamp if append_time else entry.timestamp,
            key=entry.key if entry.key is None else bytes(entry.key),
            value=entry.value if entry.value is None else bytes(entry.value),
            # Kafka prints this extra brace.
            note=f" isValid: {str(valid).lower()} crc: {crc}}}",
        )
