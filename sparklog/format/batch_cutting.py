"""Restrict a batch v2 to a range of offsets.

If records are removed at the beginning, base offset and base sequence are set to the values of the
first remaining offset, so that a producer's sequences continue over the cut. Codec, producer,
attributes and the bytes of the records stay. Source: MemoryRecords.filterTo (Kafka 4.1), which
compaction uses too.
"""

from dataclasses import replace
from typing import Any, Final

import numpy as np

from sparklog.errors import DataCorruptionError
from sparklog.format.batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    SEQUENCE_MAX,
    BatchHeader,
    encode_empty,
    seal,
)
from sparklog.format.columns import allocate
from sparklog.format.compaction import OffsetMap, Verdict, unpacked
from sparklog.format.compression import compress
from sparklog.format.parser import FAULTS
from sparklog.format.record_filter import RecordFilterKernel
from sparklog.format.scan import row_header

_GROWTH: Final = 20  # bytes by which the first varints of a record can grow
_BLOCK: Final = 32  # records that the kernel collects ahead
_MAP_BYTES: Final = 1 << 12  # minimal, because the map is not used
_ALL: Final = int(Verdict.RETAIN | Verdict.TOMBSTONES)


def cut_header(header: BatchHeader, first: int, end: int) -> BatchHeader:
    """Return the header of a batch that is cut to the offsets [first, end).

    Base offset, base sequence and last offset are changed. The count of records and the timestamps
    are not.
    """
    base = max(header.base_offset, first)
    sequence = header.base_sequence
    if sequence >= 0:
        sequence = (sequence + base - header.base_offset) & SEQUENCE_MAX
    return replace(
        header,
        base_offset=base,
        last_offset_delta=min(header.last_offset, end - 1) - base,
        base_sequence=sequence,
    )


def cut_batch(
    buf: memoryview, row: Any, first: int, end: int, *, path: str, position: int
) -> bytes | bytearray:
    """Return the batch of a `scan`'s row with only the records at offsets [first, end).

    A batch without such records becomes an empty batch, as in compaction. Records are compressed at
    the codec's default level.

    Args:
        buf: The scanned data.
        row: The batch's row in the table of the scan. The batch must reach into [first, end).
        path, position: The file, and the position of buf[0] in it.

    Raises:
        DataCorruptionError: A record is damaged.
    """
    header = row_header(row)
    offsets = OffsetMap(_MAP_BYTES)
    kernel = RecordFilterKernel(offsets.keys)
    places = np.empty((header.count + _BLOCK, 5), np.int64)
    kernel.set_places(places.data)
    records = unpacked(buf, row, path, position)
    base, last = header.base_offset, header.last_offset

    def select(at: int, stop: int, count: int) -> None:
        status = kernel.select(records, at, stop, count, base, last, _ALL)
        if status:
            raise DataCorruptionError(
                f"the batch can't be cut: {FAULTS[status]}",
                path=path, position=int(row["position"]), first=base, end=last + 1,
            )  # fmt: skip

    # Once to find the offsets of the records, and below once more for the remaining records only.
    select(0, len(records), header.count)
    steps = places[: header.count, 3]
    low, high = (int(n) for n in np.searchsorted(steps, [first - base, end - base]))
    changed = cut_header(header, first, end)
    if low >= high:
        return encode_empty(changed)
    starts = int(places[low - 1, 1]) if low else 0
    select(starts, int(places[high - 1, 1]), high - low)
    places[: high - low, 3] -= changed.base_offset - base
    append_time, marked = header.log_append_time, header.delete_horizon_ms is not None
    plain = allocate(len(records) + _GROWTH * (high - low))
    stop = kernel.write(
        records, plain, 0, header.base_timestamp, 0 if append_time is None else 1,
        header.max_timestamp, header.base_timestamp, marked,
    )  # fmt: skip
    body = compress(header.codec, plain[:stop])
    changed = replace(
        changed,
        length=HEADER_SIZE - LOG_OVERHEAD + len(body),
        base_timestamp=kernel.base_time,
        max_timestamp=kernel.largest if append_time is None else append_time,
        count=high - low,
    )
    batch = bytearray(changed.pack() + body)
    seal(batch)
    return batch
