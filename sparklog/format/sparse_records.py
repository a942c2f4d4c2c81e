"""Encode records with given offsets and gaps as batches v2 that cover a range of offsets.

Offsets are missing where a cleaner removed records, where transactions had markers, or where
readers got no aborted records. As in Kafka's cleaner, gaps are encoded in two ways: by offset
deltas that skip numbers within a batch (the last offset of the batch stays), and by batches without
records (61 bytes). Together the batches cover [start, end), so the next append follows directly.
Source: MemoryRecords.filterTo, DefaultRecordBatch.writeEmptyHeader (Kafka 4.1).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from crc32c import crc32c
from numpy.typing import NDArray

from sparklog.errors import InvalidRequestError, RecordTooLargeError
from sparklog.format.batch import (
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    BatchHeader,
    encode_empty,
)
from sparklog.format.columns import allocate
from sparklog.format.compaction import OffsetMap, Verdict
from sparklog.format.compression import Codec, compress
from sparklog.format.record_filter import RecordFilterKernel
from sparklog.format.records import encode

SPAN_MAX: Final = 2**31 - 1  # per batch, because the last offset delta is an i32
_GROWTH: Final = 20  # bytes by which the first varints of a record can grow
_BLOCK: Final = 32  # records that the kernel collects ahead
_MAP_BYTES: Final = 1 << 12  # minimal, because the map is not used


@dataclass(frozen=True, slots=True)
class Spaced:
    """Complete batches that cover the requested offsets.

    Attributes:
        data: The bytes of the batches.
        records: The number of records.
        min_timestamp: The smallest timestamp (ms); 2^63-1 without records.
        max_timestamp: The largest timestamp (ms); -1 without records.
    """

    data: bytearray
    records: int
    min_timestamp: int
    max_timestamp: int


def encode_spaced(
    rows: pa.RecordBatch,
    offsets: NDArray[np.int64],
    *,
    start: int,
    end: int,
    codec: Codec,
    level: int | None = None,
    batch_size: int,
    max_message_bytes: int,
) -> Spaced:
    """Encode rows as batches in which each record has the given offset.

    Together the batches cover [start, end): gaps between the offsets are encoded too.

    Args:
        rows: The rows, with timestamps; see `encode` for the columns.
        offsets: The offset of each row, ascending.
        start: The first offset to cover.
        end: The offset after the last offset to cover.
        codec: The compression codec.
        level: The compression level; None for Kafka's default.
        batch_size: Target bytes of records in a batch, before compression.
        max_message_bytes: Maximum size of a complete batch.

    Raises:
        InvalidRequestError: The offsets don't ascend within [start, end).
        RecordTooLargeError: A batch with a single record exceeds max_message_bytes.

    Cost:
        As `encode`, and a second copy of the records in batches with gaps.
    """
    _check(rows.num_rows, offsets, start, end)
    out = bytearray()
    low, high = 2**63 - 1, -1
    respacer = _Respacer()
    first = int(offsets[0]) if len(offsets) else end
    out += encode_gap(start, first)
    waiting = [(at, stop, batch_size) for at, stop in reversed(list(_pieces(offsets)))]
    while waiting:
        at, stop, size = waiting.pop()
        dense = encode(
            rows.slice(at, stop - at),
            codec=Codec.NONE,
            batch_size=min(size, max_message_bytes),
            # Compression may still make a larger batch fit: the limit is checked below.
            max_message_bytes=max(max_message_bytes, 2 * batch_size),
            timestamp_ms_default=-1,
        )
        low = min(low, dense.min_timestamp)
        for batch in dense.batches:
            row = at + int(batch["base_offset"])
            count = int(batch["count"])
            base = int(offsets[row])
            following = int(offsets[row + count]) if row + count < len(offsets) else end
            last = min(following - 1, base + SPAN_MAX)
            place = int(batch["position"])
            whole = dense.data[place : place + int(batch["size"])]
            steps = offsets[row : row + count] - base
            records = whole[HEADER_SIZE:]
            if int(steps[-1]) + 1 != count:
                records = respacer.respace(whole, steps, int(batch["base_timestamp"]))
            packed = _pack(batch, base, last, compress(codec, records, level), codec)
            if len(packed) > max_message_bytes and count > 1:
                # Header, longer deltas or incompressible data made the batch too large: use smaller
                # batches.
                waiting.append((row, stop, len(records) // 2))
                break
            if len(packed) > max_message_bytes:
                raise RecordTooLargeError(
                    f"the record at offset {base} makes a batch of {len(packed)} bytes, but "
                    f"max.message.bytes is {max_message_bytes}: increase it"
                )
            out += packed
            high = max(high, int(batch["max_timestamp"]))
            out += encode_gap(last + 1, following)
    return Spaced(out, rows.num_rows, low, high)


def encode_gap(start: int, end: int) -> bytes:
    """Return batches without records that cover the offsets [start, end), as after compaction."""
    return b"".join(_empty(base, last) for base, last in _empties(start, end))


def _check(count: int, offsets: NDArray[np.int64], start: int, end: int) -> None:
    if len(offsets) != count or not 0 <= start <= end:
        raise InvalidRequestError(
            f"each of the {count} rows needs an offset in [{start}, {end}); got {len(offsets)} "
            "offsets"
        )
    if count and not (
        start <= offsets[0] and offsets[-1] < end and (np.diff(offsets) > 0).all()
    ):
        raise InvalidRequestError(
            f"the offsets {offsets[0]} to {offsets[-1]} don't ascend within [{start}, {end})"
        )


def _pieces(offsets: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows, (first, end), with offsets that fit into a single batch."""
    at = 0
    while at < len(offsets):
        stop = int(np.searchsorted(offsets, offsets[at] + SPAN_MAX, "right"))
        yield at, stop
        at = stop


def _empties(start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield (base offset, last offset) of the batches without records that cover [start, end)."""
    while start < end:
        last = min(end - 1, start + SPAN_MAX)
        yield start, last
        start = last + 1


def _empty(base: int, last: int) -> bytes:
    return encode_empty(
        BatchHeader(
            base_offset=base, length=HEADER_SIZE - LOG_OVERHEAD, last_offset_delta=last - base,
            leader_epoch=0, base_timestamp=-1, max_timestamp=-1, producer_id=-1,
            producer_epoch=-1, base_sequence=-1, count=0,
        )
    )  # fmt: skip


def _pack(batch: Any, base: int, last: int, records: bytes, codec: Codec) -> bytes:
    header = HEADER.pack(
        base, HEADER_SIZE - LOG_OVERHEAD + len(records), 0, MAGIC, 0, int(codec), last - base,
        int(batch["base_timestamp"]), int(batch["max_timestamp"]), -1, -1, -1, int(batch["count"]),
    )  # fmt: skip
    crc = crc32c(records, crc32c(header[CRC_START:]))
    return header[: CRC_START - 4] + crc.to_bytes(4, "big") + header[CRC_START:] + records


class _Respacer:
    """Gives the records of a batch other offset deltas; uses the compiled loops of compaction."""

    def __init__(self) -> None:
        self._map = OffsetMap(_MAP_BYTES)
        self._kernel = RecordFilterKernel(self._map.keys)

    def respace(self, whole: memoryview, steps: NDArray[np.int64], base_time: int) -> memoryview:
        count = len(steps)
        places = np.empty((count + _BLOCK, 5), np.int64)
        self._kernel.set_places(places.data)
        verdict = int(Verdict.RETAIN | Verdict.TOMBSTONES)
        status = self._kernel.select(whole, HEADER_SIZE, len(whole), count, 0, count - 1, verdict)
        assert status == 0 and self._kernel.kept == count  # the batch was just framed
        places[:count, 3] = steps
        out = allocate(len(whole) + _GROWTH * count)
        return out[: self._kernel.write(whole, out, 0, base_time, 0, -1, base_time, 1)]
