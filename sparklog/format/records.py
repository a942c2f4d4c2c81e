"""Encode Arrow columns as complete batches v2; decoder.py is the inverse.

A record: varint length, i8 attributes 0, varlong timestamp delta, varint offset delta, varint key
length, key, varint value length, value, varint header count, then each header's varint key length,
key (UTF-8), varint value length, value. Length -1 is null. Varints are zig-zag. Source:
DefaultRecord.java, MemoryRecordsBuilder.java (Kafka 1eb7644).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NoReturn

import numpy as np
import pyarrow as pa
from crc32c import crc32c
from numpy.typing import NDArray

from sparklog.errors import InvalidRequestError, RecordTooLargeError
from sparklog.format import columns
from sparklog.format.batch import (
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC,
    SEQUENCE_MAX,
    TRANSACTIONAL,
)
from sparklog.format.compression import SIZE_MAX, Codec, check_level, compress
from sparklog.format.decoder import Decoder
from sparklog.format.framer import write_headers
from sparklog.format.rows import Feed, Picked, Rows
from sparklog.format.scan import BATCH_DTYPE, Table, seal_all

__all__ = ["BATCH_SIZE", "MAX_MESSAGE_BYTES", "Decoder", "Encoded", "Scratch", "encode"]

BATCH_SIZE: Final = 16384  # batch.size
MAX_MESSAGE_BYTES: Final = 1048588  # max.message.bytes

# Bytes framed at once, so that the CRC or the codec finds the records in the CPU cache.
_PIECE: Final = 1 << 17
_FIRST, _COUNT, _START, _END, _BASE_TIME, _MAX_TIME = range(6)  # columns of Framer's table

Frames = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Encoded:
    """Encoded record batches.

    Attributes:
        data: The bytes of the batches, which can be changed in place.
        batches: A row per batch, as of a scan, with positions in `data`.
        count: The number of records.
        min_timestamp: The smallest timestamp (ms), which no header contains; the largest int64
            without records.
    """

    data: memoryview
    batches: Table
    count: int
    min_timestamp: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    codec: Codec
    level: int | None
    batch_bytes: int
    message_max: int
    base_offset: int
    attributes: int
    producer_id: int
    producer_epoch: int
    base_sequence: int

    def sequence(self, row: int) -> int:
        return -1 if self.base_sequence < 0 else (self.base_sequence + row) & SEQUENCE_MAX


class Scratch:
    """Reusable memory for output. The next call of `encode` overwrites it."""

    def __init__(self) -> None:
        self._view = columns.allocate(0)

    @property
    def size_bytes(self) -> int:
        return len(self._view)

    def room(self, size: int, keep: int = 0) -> memoryview:
        """Return at least `size` writable bytes, with the first `keep` bytes of the last result."""
        if size > len(self._view):
            larger = columns.allocate(size)
            kept = self._view[:keep]  # shorter than `keep` if an open batch's header doesn't fit
            larger[: len(kept)] = kept
            self._view = larger
        return self._view


def encode(
    data: pa.RecordBatch | pa.Table | Sequence[Picked],
    *,
    codec: Codec,
    level: int | None = None,
    batch_size: int = BATCH_SIZE,
    max_message_bytes: int = MAX_MESSAGE_BYTES,
    timestamp_ms_default: int,
    producer: tuple[int, int, int] | None = None,
    base_offset: int = 0,
    log_append_time: int | None = None,
    transactional: bool = False,
    scratch: Scratch | None = None,
) -> Encoded:
    """Frame the rows of `data`, in order, as record batches with offsets from `base_offset`.

    Args:
        data: Columns value and, optionally, key (binary or string; null allowed), headers
            (list<struct<key: string, value: binary>>; null: none) and timestamp (any unit; null:
            `timestamp_ms_default`). Or rows picked from such batches, which already have
            timestamps.
        batch_size: Target bytes of records in a batch, before compression (Kafka: batch.size); a
            larger record gets its own batch.
        max_message_bytes: Maximum size of a complete batch as written (Kafka: max.message.bytes).
        producer: (id, epoch, sequence of the first row) of an idempotent producer.
        log_append_time: Timestamp (ms) of all records (message.timestamp.type=LogAppendTime).
        scratch: Memory for the output, until the next call with the same object.

    Raises:
        RecordTooLargeError: A row exceeds `max_message_bytes`; the message has the row and its
            size.
        InvalidRequestError: Columns or options are invalid.
    """
    if not isinstance(data, pa.RecordBatch | pa.Table):
        inputs = list(data)
    else:
        columns.check_columns(data.schema)
        inputs = [
            Picked(Rows(part, default_ms=timestamp_ms_default, append_time_ms=log_append_time))
            for part in columns.batches_of(data)
        ]
    check_level(codec, level)
    if batch_size < 1 or max_message_bytes <= HEADER_SIZE:
        raise InvalidRequestError(
            f"batch_size must be at least 1 and max_message_bytes above {HEADER_SIZE}; got "
            f"batch_size={batch_size}, max_message_bytes={max_message_bytes}"
        )
    producer_id, producer_epoch, sequence = producer or (-1, -1, -1)
    attributes = int(codec) | (TRANSACTIONAL if transactional else 0)
    if log_append_time is not None:
        attributes |= LOG_APPEND_TIME
    options = _Options(
        codec=codec,
        level=level,
        batch_bytes=min(batch_size, max_message_bytes - HEADER_SIZE),
        message_max=max_message_bytes,
        base_offset=base_offset,
        attributes=attributes,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
    )
    encoder = _encode_plain if codec == Codec.NONE else _encode_compressed
    room = scratch or Scratch()
    made = encoder(Feed(inputs), options, room)
    if scratch is None and 0 < 2 * len(made.data) < room.size_bytes:  # free the unused memory
        whole = columns.allocate(len(made.data))
        whole[:] = made.data
        made = replace(made, data=whole)
    return made


def _encode_plain(feed: Feed, options: _Options, scratch: Scratch) -> Encoded:
    """Encode records without compression, directly in the output buffer.

    So Arrow's buffers are copied only once.
    """
    # Two adjacent batches together exceed batch_bytes, else they would be a single batch.
    batches = min(feed.count, 2 * feed.bound // options.batch_bytes + 2)
    out = scratch.room(feed.bound + batches * HEADER_SIZE)
    record_max = options.message_max - HEADER_SIZE
    most = max(1, _PIECE // options.batch_bytes)
    frames: list[Frames] = []
    at = 0
    while not feed.done:
        table = np.empty((most, 6), np.int64)
        count, at, need = feed.frame(out, at, options.batch_bytes, record_max, table)
        if need > record_max:
            _too_large(feed.row, need + HEADER_SIZE, options)
        table = table[:count]
        write_headers(
            out,
            table.data,
            options.base_offset,
            options.attributes,
            options.producer_id,
            options.producer_epoch,
            options.base_sequence,
        )
        seal_all(out, table[:, _START].tolist(), table[:, _END].tolist())
        frames.append(table)
        if need:  # the bound is exact for all rows of a batch only
            out = scratch.room(2 * len(out) + need + HEADER_SIZE, keep=at)
    return Encoded(out[:at], _summary(frames, options), feed.count, feed.lowest)


def _encode_compressed(feed: Feed, options: _Options, scratch: Scratch) -> Encoded:
    """Encode a few batches at a time, then compress each of them into the output buffer.

    The uncompressed batches are in a small buffer, which stays in the CPU cache.
    """
    out = scratch.room(feed.bound // 2 + _PIECE)
    framed = columns.allocate(options.batch_bytes + _PIECE)
    batch_bytes = options.batch_bytes
    most = max(1, _PIECE // batch_bytes)
    frames: list[Frames] = []
    at = begun = 0  # `begun`: the bytes of an open batch that were moved to the front
    while not feed.done:
        table = np.empty((most, 6), np.int64)
        count, end, need = feed.frame(framed, begun, batch_bytes, SIZE_MAX, table)
        if need > SIZE_MAX:
            _too_large(feed.row, need, options)
        batch_bytes, begun = options.batch_bytes, 0
        for row, frame in enumerate(table[:count].tolist()):
            packed = _pack(framed, frame, options)
            size = sum(map(len, packed))
            if size > options.message_max:
                # Compression did not help: retry with half the records, or fail for a single
                # record.
                if frame[_COUNT] == 1:
                    _too_large(frame[_FIRST], size, options)
                feed.rewind(frame[_FIRST])
                count, need = row, 0
                batch_bytes = (frame[_END] - frame[_START] - HEADER_SIZE) // 2
                break
            if at + size > len(out):
                out = scratch.room(2 * len(out) + size, keep=at)
            table[row, _START] = at
            for piece in packed:
                out[at : at + len(piece)] = piece
                at += len(piece)
            table[row, _END] = at
        frames.append(table[:count])
        if feed.opened >= 0:  # move the open batch to the front, into more memory if necessary
            kept = framed[feed.opened : end]
            if need:
                framed = columns.allocate(2 * (len(kept) + need) + options.batch_bytes)
            begun = end - feed.opened
            framed[: len(kept)] = kept
            feed.moved(0)
    return Encoded(out[:at], _summary(frames, options), feed.count, feed.lowest)


def _pack(framed: memoryview, frame: list[int], options: _Options) -> list[bytes]:
    """Return the bytes of a compressed batch, in pieces.

    `framed` contains the uncompressed records, and `frame` is the batch's row in the table of
    `Framer.frame`.
    """
    first, count, start, end, base_time, max_time = frame
    records = compress(options.codec, framed[start + HEADER_SIZE : end], options.level)
    header = HEADER.pack(
        options.base_offset + first,
        HEADER_SIZE - LOG_OVERHEAD + len(records),
        0,  # the leader epoch, which the append sets
        MAGIC,
        0,  # the CRC, which is set below
        options.attributes,
        count - 1,
        base_time,
        max_time,
        options.producer_id,
        options.producer_epoch,
        options.sequence(first),
        count,
    )
    crc = crc32c(records, crc32c(header[CRC_START:]))
    return [header[: CRC_START - 4], crc.to_bytes(4, "big"), header[CRC_START:], records]


def _summary(frames: list[Frames], options: _Options) -> Table:
    table = np.concatenate([np.empty((0, 6), np.int64), *frames])
    batches = np.empty(len(table), BATCH_DTYPE)
    batches["position"] = table[:, _START]
    batches["size"] = table[:, _END] - table[:, _START]
    batches["base_offset"] = options.base_offset + table[:, _FIRST]
    batches["last_offset"] = batches["base_offset"] + table[:, _COUNT] - 1
    batches["base_timestamp"] = table[:, _BASE_TIME]
    batches["max_timestamp"] = table[:, _MAX_TIME]
    batches["producer_id"] = options.producer_id
    batches["producer_epoch"] = options.producer_epoch
    batches["base_sequence"] = -1
    if options.base_sequence >= 0:
        batches["base_sequence"] = (options.base_sequence + table[:, _FIRST]) & SEQUENCE_MAX
    batches["count"] = table[:, _COUNT]
    batches["attributes"] = options.attributes
    batches["leader_epoch"] = 0
    batches["magic"] = 2
    return batches


def _too_large(row: int, size: int, options: _Options) -> NoReturn:
    error = RecordTooLargeError(
        f"row {row} makes a batch of {size} bytes, but max.message.bytes is "
        f"{options.message_max}: increase it, or make the record smaller"
    )
    error.size_bytes = size
    raise error
