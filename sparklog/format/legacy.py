"""Message sets of magic 0 and 1, read-only: converted to records of magic 2 for the parser.

  i64 offset, i32 size, u32 CRC-32 (from magic on), i8 magic, i8 attributes,
  [magic 1: i64 timestamp], i32 key length, key, i32 value length, value; length -1 is null

A compressed entry contains a message set; its offset is the offset of the last inner message. Inner
offsets of magic 1 are relative to the first, inner offsets of magic 0 are absolute. Magic 0 has no
timestamp (timestamp and type are -1); its lz4 frames have a wrong header checksum, which is
corrected here. Source: LegacyRecord.java, AbstractLegacyRecordBatch.java, Lz4BlockOutputStream
(Kafka 1eb7644).
"""

import struct
import zlib
from dataclasses import dataclass, replace
from typing import Final

from sparklog.errors import DataCorruptionError
from sparklog.format.batch import (
    CODEC_MASK,
    LEGACY_SIZE_MIN,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    BatchHeader,
    Buffer,
)
from sparklog.format.compression import Codec, decompress

_ENTRY: Final = struct.Struct(">qiIbb")
_TIME: Final = struct.Struct(">q")
_LENGTH: Final = struct.Struct(">i")
_CRC_START: Final = 16
NO_TIMESTAMP: Final = -1
# A set is decompressed for its first offset, already when headers are scanned, so its size is
# limited. Old producers filled batches by their uncompressed size, 16 KB by default.
PLAIN_BYTES_MAX: Final = 256 << 20
MESSAGES_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Converted:
    """A message set as records of magic 2, relative to offset 0 and timestamp 0.

    Attributes:
        records: The bytes of the records.
        count: The number of records.
        last: The offset of the last record.
        max_timestamp: The timestamp of all records if the type is LogAppendTime, else -1.
        timestamp_type: 0 for CreateTime, 1 for LogAppendTime, -1 for magic 0.
    """

    records: memoryview
    count: int
    last: int
    max_timestamp: int
    timestamp_type: int


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a message set.

    Attributes:
        offset: The absolute offset.
        timestamp: The timestamp (ms); -1 for magic 0.
        key: The key, or None.
        value: The value, or None.
        entry: All bytes of the message.
    """

    offset: int
    timestamp: int
    key: memoryview | None
    value: memoryview | None
    entry: memoryview


def read_entry(buf: Buffer, at: int, *, path: str, position: int, check_crc: bool) -> BatchHeader:
    """Return the header of the message set entry at byte `at`, in the form of a batch header.

    The entry must be complete. A compressed entry is decompressed for its first offset.

    Raises:
        DataCorruptionError: The CRC, sizes or inner messages are wrong.
    """
    view = memoryview(buf)
    offset, length, crc, magic, attributes = _ENTRY.unpack_from(buf, at)
    place = position + at
    if check_crc:
        actual = zlib.crc32(view[at + _CRC_START : at + LOG_OVERHEAD + length])
        if actual != crc:
            raise DataCorruptionError(
                f"the CRC of the message is {actual}, but its header has {crc}",
                path=path,
                position=place,
            )
    messages = read_messages(view[at : at + LOG_OVERHEAD + length], path=path, position=place)
    stamps = [message.timestamp for message in messages]
    append_time = magic == 1 and attributes & LOG_APPEND_TIME
    wrapper_time = _TIME.unpack_from(buf, at + _ENTRY.size)[0] if magic == 1 else NO_TIMESTAMP
    return BatchHeader(
        base_offset=messages[0].offset,
        length=length,
        magic=magic,
        crc=crc,
        attributes=attributes,
        last_offset_delta=offset - messages[0].offset,
        base_timestamp=stamps[0],
        max_timestamp=wrapper_time if append_time else max(stamps),
        count=len(messages),
    )


def to_records(entry: memoryview, *, path: str, position: int) -> Converted:
    """Convert a complete entry to records for the parser. The CRC is not checked.

    Raises:
        DataCorruptionError: Sizes or inner messages are wrong.
    """
    _, _, _, magic, attributes = _ENTRY.unpack_from(entry)
    messages = read_messages(entry, path=path, position=position)
    append_time = magic == 1 and attributes & LOG_APPEND_TIME
    kind = NO_TIMESTAMP if magic == 0 else int(bool(append_time))
    out = bytearray()
    for message in messages:
        body = bytearray(1)
        body += _varint(message.timestamp) + _varint(message.offset)
        for field in (message.key, message.value):
            body += _varint(-1) if field is None else _varint(len(field))
            body += field or b""
        body += _varint(0)
        out += _varint(len(body)) + body
    top = _TIME.unpack_from(entry, _ENTRY.size)[0] if append_time else NO_TIMESTAMP
    return Converted(memoryview(out), len(messages), messages[-1].offset, top, kind)


def read_messages(entry: memoryview, *, path: str, position: int) -> list[Message]:
    """Return the messages of an entry: the entry itself, or the inner messages if compressed.

    CRCs are not checked.

    Raises:
        DataCorruptionError: Sizes or inner messages are wrong.
    """
    try:
        outer, magic, attributes = _message(entry)
        codec = Codec(attributes & CODEC_MASK)
        if codec == Codec.NONE:
            return [outer]
        if codec == Codec.ZSTD or outer.value is None:
            raise ValueError(f"{codec.name.lower()} or a null value can't be in magic {magic}")
        data: Buffer = outer.value
        if codec == Codec.LZ4 and magic == 0:
            data = _mended(outer.value)
        plain = decompress(
            codec, data, path=path, position=position, limit=PLAIN_BYTES_MAX
        )
        inner = _inner(memoryview(plain), magic)
    except (ValueError, struct.error) as error:
        raise DataCorruptionError(
            f"the message set is invalid: {error}", path=path, position=position
        ) from None
    # Magic 1 counts from 0 within the wrapper. The wrapper's own offset is that of its last
    # message.
    shift = outer.offset - inner[-1].offset if magic == 1 else 0
    placed = [replace(message, offset=message.offset + shift) for message in inner]
    offsets = [message.offset for message in placed]
    if offsets[0] < 0 or offsets[-1] != outer.offset or offsets != sorted(set(offsets)):
        raise DataCorruptionError("the inner offsets don't ascend", path=path, position=position)
    return placed


def _inner(data: memoryview, magic: int) -> list[Message]:
    messages = []
    at = 0
    while at < len(data):
        size = LOG_OVERHEAD + int(_LENGTH.unpack_from(data, at + 8)[0])
        if not LOG_OVERHEAD + LEGACY_SIZE_MIN <= size <= len(data) - at:
            raise ValueError(f"an inner message has an invalid size of {size} bytes")
        message, inner_magic, attributes = _message(data[at : at + size])
        if inner_magic != magic or attributes & CODEC_MASK:
            raise ValueError("an inner message has another magic, or is compressed")
        messages.append(message)
        if len(messages) > MESSAGES_MAX:
            raise ValueError(f"the compressed message contains more than {MESSAGES_MAX} messages")
        at += size
    if not messages:
        raise ValueError("the compressed message contains no inner messages")
    return messages


def _message(entry: memoryview) -> tuple[Message, int, int]:
    """Return the message in an entry, its magic and its attributes.

    Raises:
        ValueError: The message is damaged.
        struct.error: The message is damaged.
    """
    offset, _, _, magic, attributes = _ENTRY.unpack_from(entry)
    at, timestamp = _ENTRY.size, NO_TIMESTAMP
    if offset < 0:
        raise ValueError(f"offset {offset} is negative")
    if magic == 1:
        timestamp = _TIME.unpack_from(entry, at)[0]
        at += _TIME.size
    fields: list[memoryview | None] = []
    for _ in range(2):
        size = _LENGTH.unpack_from(entry, at)[0]
        at += _LENGTH.size
        if size > len(entry) - at:
            raise ValueError(f"a key or value of {size} bytes is longer than the message")
        fields.append(None if size < 0 else entry[at : at + size])
        at += max(size, 0)
    if at != len(entry):
        raise ValueError(f"{len(entry) - at} bytes are left over behind the value")
    return Message(offset, timestamp, fields[0], fields[1], entry), magic, attributes


def _varint(value: int) -> bytes:
    """Encode an i64 as a zig-zag varint."""
    bits = (value << 1) ^ (value >> 63)
    out = bytearray()
    while bits > 0x7F:
        out.append(bits & 0x7F | 0x80)
        bits >>= 7
    out.append(bits)
    return bytes(out)


def _mended(frame: memoryview) -> bytes:
    """Return an lz4 frame of magic 0 with the header checksum of the specification.

    Kafka's first versions included the frame's magic number in the checksum. Source:
    Lz4BlockOutputStream.
    """
    data = bytearray(frame)
    end = 6 + (8 if len(data) > 4 and data[4] & 0x08 else 0)
    if len(data) > end:
        data[end] = _xxh32(bytes(data[4:end])) >> 8 & 0xFF
    return bytes(data)


def _xxh32(data: bytes) -> int:
    """Return the XXH32 with seed 0 of fewer than 16 bytes."""
    assert len(data) < 16
    mask = 0xFFFFFFFF
    h = (374761393 + len(data)) & mask
    at = 0
    while at + 4 <= len(data):
        h = (h + int.from_bytes(data[at : at + 4], "little") * 3266489917) & mask
        h = (((h << 17) | (h >> 15)) & mask) * 668265263 & mask
        at += 4
    for byte in data[at:]:
        h = (h + byte * 374761393) & mask
        h = (((h << 11) | (h >> 21)) & mask) * 2654435761 & mask
    h = (h ^ (h >> 15)) * 2246822519 & mask
    h = (h ^ (h >> 13)) * 3266489917 & mask
    return h ^ (h >> 16)
