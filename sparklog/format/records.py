"""Records out: Arrow columns -> whole batches v2. The way back is decoder.py.

A record: varint length, i8 attributes 0, varlong timestamp delta, varint offset delta, varint
key length, key, varint value length, value, varint header count, then each header's varint key
length, key (UTF-8), varint value length, value. Length -1 is null. Varints are zig-zag.
Source: DefaultRecord.java, MemoryRecordsBuilder.java (Kafka 1eb7644).
"""

from dataclasses import dataclass
from typing import Any, Final, NoReturn

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
from sparklog.format.framer import Framer, write_headers
from sparklog.format.scan import BATCH_DTYPE, Table, seal_all

__all__ = ["BATCH_SIZE", "MAX_MESSAGE_BYTES", "Decoder", "Encoded", "encode"]

BATCH_SIZE: Final = 16384  # batch.size
MAX_MESSAGE_BYTES: Final = 1048588  # max.message.bytes

# Framed in such pieces, so that the CRC or the codec finds the records still in the cache.
_PIECE: Final = 1 << 17
_RECORD_OVERHEAD: Final = 36  # the most that varints and attributes of a record take
_HEADER_OVERHEAD: Final = 10
_FIRST, _COUNT, _START, _END, _BASE_TIME, _MAX_TIME = range(6)  # columns of Framer's table

Frames = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Encoded:
    """Whole batches. `data` is writable; `batches` has one row each, with positions in `data`."""

    data: memoryview
    batches: Table
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    codec: Codec
    level: int | None
    batch_bytes: int
    message_max: int
    base_offset: int
    leader_epoch: int
    attributes: int
    producer_id: int
    producer_epoch: int
    base_sequence: int

    def sequence(self, row: int) -> int:
        return -1 if self.base_sequence < 0 else (self.base_sequence + row) & SEQUENCE_MAX


def encode(
    data: pa.RecordBatch | pa.Table,
    *,
    codec: Codec,
    level: int | None = None,
    batch_size: int = BATCH_SIZE,
    max_message_bytes: int = MAX_MESSAGE_BYTES,
    timestamp_ms_default: int,
    producer: tuple[int, int, int] | None = None,
    base_offset: int = 0,
    leader_epoch: int = 0,
    log_append_time: int | None = None,
    transactional: bool = False,
) -> Encoded:
    """Frame the rows of `data`, in order, as record batches with offsets from `base_offset`.

    Args:
        data: columns value and, optionally, key (binary or string; null allowed), headers
            (list<struct<key: string, value: binary>>; null: none) and timestamp (any unit;
            null: `timestamp_ms_default`).
        batch_size: bytes of records to aim at in a batch, before compression (Kafka: batch.size);
            a larger record gets a batch of its own.
        max_message_bytes: bound of a whole batch as written (Kafka: max.message.bytes).
        producer: (id, epoch, sequence of the first row) of an idempotent producer.
        log_append_time: ms; every record gets it (message.timestamp.type=LogAppendTime).
    Raises:
        RecordTooLargeError: a row doesn't fit `max_message_bytes`; names the row and its size.
        InvalidRequestError: columns or options can't be used.
    """
    columns.check_columns(data.schema)
    check_level(codec, level)
    if batch_size < 1 or max_message_bytes <= HEADER_SIZE:
        raise InvalidRequestError(f"batch_size={batch_size} max_message_bytes={max_message_bytes}")
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
        leader_epoch=leader_epoch,
        attributes=attributes,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
    )
    inputs = [
        _Input(part, timestamp_ms_default, log_append_time) for part in columns.batches_of(data)
    ]
    if codec == Codec.NONE:
        return _encode_plain(inputs, options)
    return _encode_compressed(inputs, options)


class _Input:
    """One Arrow batch, ready for the kernel, and a bound of what it takes on disk."""

    def __init__(self, batch: pa.RecordBatch, default_ms: int, append_time: int | None) -> None:
        rows = batch.num_rows
        given = {name: batch.column(name) for name in batch.schema.names}
        key = columns.to_binary(given.get("key", _nulls(rows)), "key")
        value = columns.to_binary(given["value"], "value")
        if append_time is None:
            stamps = columns.to_millis(given.get("timestamp"), rows, default_ms)
        else:
            stamps = np.full(rows, append_time, np.int64)
        self.rows = rows
        self.framer = Framer(stamps.data, columns.views(key))
        self.framer.set_value(*columns.views(value))
        self.bound = rows * _RECORD_OVERHEAD
        self.bound += columns.data_bytes(key) + columns.data_bytes(value)
        headers = given.get("headers")
        if headers is not None and not pa.types.is_null(headers.type):
            self._add_headers(columns.to_headers(headers))

    def _add_headers(self, lists: Any) -> None:
        elements = lists.values
        names = columns.to_binary(elements.field("key"), "headers")
        contents = elements.field("value")
        offsets, valid, bit = columns.list_views(lists)
        name_offsets, name_data, _, _ = columns.views(names)
        content = columns.views(contents)
        self.framer.set_headers((offsets, valid, bit), (name_offsets, name_data), content)
        first, last = int(offsets[0]), int(offsets[-1])
        self.bound += (last - first) * _HEADER_OVERHEAD
        if last > first:
            self.bound += int(name_offsets[last]) - int(name_offsets[first])
            self.bound += int(content[0][last]) - int(content[0][first])


def _nulls(rows: int) -> Any:
    return pa.nulls(rows, pa.binary())


def _encode_plain(inputs: list[_Input], options: _Options) -> Encoded:
    """Without a codec records are framed where they stay: one copy, from Arrow's buffers."""
    room = 0
    for part in inputs:
        # Two neighbouring batches hold more than batch_bytes, else they were one.
        batches = min(part.rows, 2 * part.bound // options.batch_bytes + 2)
        room += part.bound + batches * HEADER_SIZE
    out = columns.allocate(room)
    record_max = options.message_max - HEADER_SIZE
    most = max(1, _PIECE // options.batch_bytes)
    frames: list[Frames] = []
    done = at = 0
    for part in inputs:
        framer = part.framer
        while framer.row < part.rows:
            table = np.empty((most, 6), np.int64)
            count, at = framer.frame(out, at, options.batch_bytes, record_max, table.data, most)
            if framer.need:
                _too_large(done + framer.at_row, framer.need + HEADER_SIZE, options)
            table = table[:count]
            table[:, _FIRST] += done
            write_headers(
                out,
                table.data,
                options.base_offset,
                options.leader_epoch,
                options.attributes,
                options.producer_id,
                options.producer_epoch,
                options.base_sequence,
            )
            seal_all(out, table[:, _START].tolist(), table[:, _END].tolist())
            frames.append(table)
        done += part.rows
    return Encoded(out[:at], _summary(frames, options), done)


def _encode_compressed(inputs: list[_Input], options: _Options) -> Encoded:
    """Frame a few batches into a scratch buffer that stays in the cache, then compress each."""
    bound = sum(part.bound for part in inputs)
    out = columns.allocate(bound + bound // 64 + _PIECE)
    frames: list[Frames] = []
    scratch = columns.allocate(options.batch_bytes + _PIECE)
    most = max(1, _PIECE // options.batch_bytes)
    done = at = 0
    for part in inputs:
        framer = part.framer
        batch_bytes = options.batch_bytes
        while framer.row < part.rows:
            table = np.empty((most, 6), np.int64)
            count, _ = framer.frame(scratch, 0, batch_bytes, SIZE_MAX, table.data, most)
            if framer.need and not count:
                if framer.need > SIZE_MAX:
                    _too_large(done + framer.at_row, framer.need, options)
                scratch = columns.allocate(2 * framer.need + options.batch_bytes)
                continue
            batch_bytes = options.batch_bytes
            for row, frame in enumerate(table[:count].tolist()):
                packed = _pack(scratch, frame, done, options)
                size = sum(map(len, packed))
                if size > options.message_max:
                    # The codec made it no smaller: half the records, or none if it was one.
                    if frame[_COUNT] == 1:
                        _too_large(done + frame[_FIRST], size, options)
                    framer.row, count = frame[_FIRST], row
                    batch_bytes = (frame[_END] - frame[_START] - HEADER_SIZE) // 2
                    break
                if at + size > len(out):
                    larger = columns.allocate(2 * len(out) + size)
                    larger[:at] = out[:at]
                    out = larger
                table[row, _FIRST] += done
                table[row, _START] = at
                for piece in packed:
                    out[at : at + len(piece)] = piece
                    at += len(piece)
                table[row, _END] = at
            frames.append(table[:count])
        done += part.rows
    if 2 * at < len(out):  # don't keep what isn't used
        whole = columns.allocate(at)
        whole[:] = out[:at]
        out = whole
    return Encoded(out[:at], _summary(frames, options), done)


def _pack(scratch: memoryview, frame: list[int], done: int, options: _Options) -> list[bytes]:
    """Header and compressed records of one framed batch."""
    first, count, start, end, base_time, max_time = frame
    records = compress(options.codec, scratch[start + HEADER_SIZE : end], options.level)
    header = HEADER.pack(
        options.base_offset + done + first,
        HEADER_SIZE - LOG_OVERHEAD + len(records),
        options.leader_epoch,
        MAGIC,
        0,  # the CRC takes its place below
        options.attributes,
        count - 1,
        base_time,
        max_time,
        options.producer_id,
        options.producer_epoch,
        options.sequence(done + first),
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
    batches["leader_epoch"] = options.leader_epoch
    batches["magic"] = 2
    return batches


def _too_large(row: int, size: int, options: _Options) -> NoReturn:
    raise RecordTooLargeError(
        f"row {row} makes a batch of {size} bytes, max.message.bytes is {options.message_max}: "
        "raise it, or make the record smaller"
    )
