"""Record batch v2 header: bytes in, values out. No files, no clock.

  at  len  field                   type  note
   0    8  base_offset             i64   not under the CRC
   8    4  length                  i32   bytes after this field, so the whole batch is 12 + length
  12    4  leader_epoch            i32   not under the CRC
  16    1  magic                   i8    2
  17    4  crc                     u32   CRC-32C of byte 21 to the end of the batch
  21    2  attributes              i16   bits 0-2 codec, 3 log append time, 4 transactional,
                                         5 control, 6 base_timestamp is the delete horizon
  23    4  last_offset_delta       i32
  27    8  base_timestamp          i64   the FIRST record's, so deltas can be negative
  35    8  max_timestamp           i64
  43    8  producer_id             i64   -1: none
  51    2  producer_epoch          i16   -1: none
  53    4  base_sequence           i32   -1: none
  57    4  count                   i32
  61       records                       compressed as a whole, if at all
Big-endian. Source: DefaultRecordBatch.java (Kafka 1eb7644), which wins over this table.
"""

import struct
from dataclasses import dataclass
from typing import Final

from crc32c import crc32c

from sparklog.format.compression import Codec

Buffer = bytes | bytearray | memoryview

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE: Final = 61
assert HEADER.size == HEADER_SIZE  # a wrong layout fails at import, not on disk

LOG_OVERHEAD: Final = 12  # base_offset and length, which `length` does not count
CRC_START: Final = 21
MAGIC_END: Final = 17  # Kafka's scan ends without an error if only this many bytes are left
LEGACY_SIZE_MIN: Final = 14  # LegacyRecord.RECORD_OVERHEAD_V0: below it `length` can't be right
MAGIC: Final = 2
SEQUENCE_MAX: Final = 2**31 - 1
OFFSET_MAX: Final = 2**63 - 1

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40

BATCH_PREFIX: Final = struct.Struct(">qiib")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchHeader:
    """The fields of a batch header. Timestamps are milliseconds since the epoch.

    For magic 0 and 1, fields that those formats lack are -1 (leader_epoch, producer_*).
    """

    base_offset: int
    length: int
    leader_epoch: int = -1
    magic: int = MAGIC
    crc: int = 0
    attributes: int = 0
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    count: int

    @property
    def size(self) -> int:
        """The size of the batch in bytes, header included."""
        return LOG_OVERHEAD + self.length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset after the batch's last offset, at which readers continue.

        The last offset counts even if compaction has removed its record.
        """
        return self.last_offset + 1

    @property
    def codec(self) -> Codec:
        return Codec(self.attributes & CODEC_MASK)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def log_append_time(self) -> int | None:
        """The append time (ms), which is the timestamp of all records; None with CreateTime."""
        return self.max_timestamp if self.attributes & LOG_APPEND_TIME else None

    @property
    def delete_horizon_ms(self) -> int | None:
        """The time (ms) from which compaction may drop the batch's tombstones; None if not set."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None

    @property
    def last_sequence(self) -> int:
        """The sequence of the batch's last offset; -1 without a producer.

        The last offset counts even if compaction has removed its record.
        """
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & SEQUENCE_MAX

    def pack(self, crc: int | None = None) -> bytes:
        """Return the header as 61 bytes, with `crc` in place of the header's CRC if given."""
        return HEADER.pack(
            self.base_offset,
            self.length,
            self.leader_epoch,
            self.magic,
            self.crc if crc is None else crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.count,
        )


def unpack_header(buf: Buffer, at: int) -> BatchHeader:
    """Decode the 61 bytes at `at` without any check."""
    fields = HEADER.unpack_from(buf, at)
    return BatchHeader(
        base_offset=fields[0],
        length=fields[1],
        leader_epoch=fields[2],
        magic=fields[3],
        crc=fields[4],
        attributes=fields[5],
        last_offset_delta=fields[6],
        base_timestamp=fields[7],
        max_timestamp=fields[8],
        producer_id=fields[9],
        producer_epoch=fields[10],
        base_sequence=fields[11],
        count=fields[12],
    )


def header_fault(base_offset: int, length: int, magic: int) -> str | None:
    """Return why these fields of a complete batch are invalid; None if they are valid."""
    if magic != MAGIC:
        return f"magic {magic} is unknown; the known values are 0, 1 and 2"
    if length < HEADER_SIZE - LOG_OVERHEAD:
        return f"batch length {length} is less than that of a header"
    if base_offset < 0:
        return f"base offset {base_offset} is negative"
    return None


def field_fault(attributes: int, last_offset_delta: int, count: int) -> str | None:
    """Return why these fields, which the CRC covers, are invalid; None if they are valid."""
    # Compaction removes records but keeps the last offset, so a count may be smaller.
    if attributes & CODEC_MASK > max(Codec):
        return f"codec {attributes & CODEC_MASK} is unknown"
    if last_offset_delta < 0 or not 0 <= count <= last_offset_delta + 1:
        return f"{count} records up to offset delta {last_offset_delta} are impossible"
    return None


def seal(batch: bytearray | memoryview) -> None:
    """Compute the CRC of a complete batch and write it into the header."""
    struct.pack_into(">I", batch, MAGIC_END, crc32c(memoryview(batch)[CRC_START:]))


def encode_empty(header: BatchHeader) -> bytes:
    """Return the 61 bytes that compaction leaves of a batch without remaining records.

    Offsets, sequences, producer and max_timestamp stay. Source:
    DefaultRecordBatch.writeEmptyHeader.
    """
    batch = bytearray(
        HEADER.pack(
            header.base_offset,
            HEADER_SIZE - LOG_OVERHEAD,
            header.leader_epoch,
            MAGIC,
            0,
            # Nothing is left to decompress, and no tombstone that would need a delete horizon.
            header.attributes & (LOG_APPEND_TIME | TRANSACTIONAL | CONTROL),
            header.last_offset_delta,
            -1,
            header.max_timestamp,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            0,
        )
    )
    seal(batch)
    return bytes(batch)


def encode_one(
    key: bytes | None, value: bytes | None, *, timestamp: int, base_sequence: int = -1
) -> bytearray:
    """Return a batch with a single record at offset 0 and leader epoch 0, as `encode` would.

    Works without Arrow, for writers that write only now and then.

    Args:
        key: The key, or None.
        value: The value, or None.
        timestamp: The timestamp (ms).
        base_sequence: The sequence of the record; -1 without a producer.
    """
    record = b"\0\0\0" + _field(key) + _field(value) + b"\0"  # no attributes, deltas, headers
    record = _varint(len(record)) + record
    length = HEADER_SIZE - LOG_OVERHEAD + len(record)
    header = HEADER.pack(
        0, length, 0, MAGIC, 0, 0, 0, timestamp, timestamp, -1, -1, base_sequence, 1
    )
    batch = bytearray(header + record)
    seal(batch)
    return batch


def decode_one(buf: Buffer, *, path: str) -> tuple[int, bytes | None, int]:
    """Decode the result of `encode_one` as (offset, value, size in bytes).

    Bytes behind the batch are ignored.

    Raises:
        ValueError: The bytes do not start with a complete batch v2 that contains a single
            uncompressed record and has a valid CRC.
    """
    if len(buf) < HEADER_SIZE:
        raise ValueError(f"{len(buf)} bytes are too few for the header of a batch")
    header = unpack_header(buf, 0)
    reason = header_fault(header.base_offset, header.length, header.magic)
    if reason is not None or header.size > len(buf) or header.count != 1 or header.attributes:
        raise ValueError(reason or "the data are not an uncompressed batch with a single record")
    view = memoryview(buf)
    if crc32c(view[CRC_START : header.size]) != header.crc:
        raise ValueError("the CRC of the batch doesn't match its contents")
    at = HEADER_SIZE
    _, at = _read_varint(view, at)  # the record's length
    _, at = _read_varint(view, at + 1)  # after the attributes, the timestamp's delta
    _, at = _read_varint(view, at)
    size, at = _read_varint(view, at)  # of the key
    size, at = _read_varint(view, at + max(size, 0))
    return header.base_offset, None if size < 0 else bytes(view[at : at + size]), header.size


def _read_varint(view: memoryview, at: int) -> tuple[int, int]:
    """Decode the zig-zag varint at byte `at`; return the number and the position after it."""
    number = shift = 0
    while True:
        byte = view[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at


def _field(data: bytes | None) -> bytes:
    return b"\1" if data is None else _varint(len(data)) + data


def _varint(number: int) -> bytes:
    """Encode a non-negative number as a zig-zag varint."""
    number <<= 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
