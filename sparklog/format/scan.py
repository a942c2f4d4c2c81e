"""Scan the complete batches in a buffer into a NumPy table of headers; renumber batches.

For magic 0 or 1, the table has a row per entry; a compressed message set is a single entry. Source:
FileRecords.batches, LogSegment.recover, LogValidator.assignOffsets (Kafka 1eb7644).
"""

import struct
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from sparklog.errors import DataCorruptionError, InvalidRequestError
from sparklog.format import kernel, legacy
from sparklog.format.batch import (
    BATCH_PREFIX,
    CRC_START,
    DELETE_HORIZON,
    LEGACY_SIZE_MIN,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC_END,
    OFFSET_MAX,
    BatchHeader,
    Buffer,
    field_fault,
    header_fault,
    unpack_header,
)

BATCH_DTYPE: Final = np.dtype(
    [
        ("position", np.int64),  # in the file, of the batch's first byte
        ("size", np.int64),  # of the complete batch
        ("base_offset", np.int64),
        ("last_offset", np.int64),
        ("base_timestamp", np.int64),
        ("max_timestamp", np.int64),
        ("producer_id", np.int64),
        ("producer_epoch", np.int16),
        ("base_sequence", np.int32),
        ("count", np.int32),
        ("attributes", np.int16),
        ("leader_epoch", np.int32),
        ("magic", np.int8),
    ]
)
"""A row per batch, in native byte order; fields as in `BatchHeader`."""

PREFIX_DTYPE: Final = np.dtype([("base_offset", ">i8"), ("length", ">i4"), ("leader_epoch", ">i4")])
"""The first 16 bytes of a batch, which the CRC does not cover."""

Table = NDArray[np.void]
_CHUNK: Final = 16384


def read_header(
    buf: Buffer, at: int, *, path: str, position: int = 0, check_crc: bool = True
) -> BatchHeader | None:
    """Decode and check the batch that starts at byte `at` of `buf`.

    Args:
        buf: Bytes of a file, which are not copied.
        at: The position of the batch in `buf`.
        path: The file, for errors.
        position: The position of buf[0] in the file.
        check_crc: Whether to check the CRC.

    Returns:
        The header (also of magic 0 and 1), or None if the batch is incomplete: a torn tail, or the
        end.

    Raises:
        DataCorruptionError: All bytes exist, but length, magic, CRC or a count is wrong.

    Cost: a CRC pass over the batch. Source: FileLogInputStream.nextBatch, LogSegment.recover.
    """
    left = len(buf) - at
    if left <= MAGIC_END:
        return None
    base_offset, length, _, magic = BATCH_PREFIX.unpack_from(buf, at)
    if length < LEGACY_SIZE_MIN:
        raise DataCorruptionError(
            f"batch length {length} is less than the minimum of {LEGACY_SIZE_MIN} bytes",
            path=path,
            position=position + at,
        )
    if left < LOG_OVERHEAD + length:
        return None
    if magic in (0, 1):
        return legacy.read_entry(buf, at, path=path, position=position, check_crc=check_crc)
    reason = header_fault(base_offset, length, magic)
    if reason is None:
        header = unpack_header(buf, at)
        if check_crc:
            crc = crc32c(memoryview(buf)[at + CRC_START : at + header.size])
            if crc != header.crc:
                reason = f"crc is {crc}, the header says {header.crc}"
        reason = reason or field_fault(header.attributes, header.last_offset_delta, header.count)
        if reason is None and header.last_offset > OFFSET_MAX:
            reason = f"base offset {base_offset} is too large: the last offset exceeds 2^63-1"
    if reason is not None:
        raise DataCorruptionError(reason, path=path, position=position + at)
    return header


@dataclass(frozen=True, slots=True)
class Batches:
    """The result of a scan.

    Attributes:
        table: The complete valid batches, a row each.
        end: The file position after the last complete valid batch.
        error: The first damage, at `end`; None at a clean end or a torn tail (`end` is then below
            the end of the buffer).
    """

    table: Table
    end: int
    error: DataCorruptionError | None

    def __len__(self) -> int:
        return len(self.table)


def scan(
    buf: Buffer,
    *,
    path: str,
    position: int = 0,
    check_crc: bool = True,
    max_batches: int | None = None,
) -> Batches:
    """Find the complete batches from the start of `buf` up to the first damage.

    Never raises for invalid bytes. Whether offsets ascend is not checked, because that depends on
    compaction.

    Args:
        buf: Bytes of a file, beginning with a batch.
        path: The file, for errors.
        position: The position of buf[0] in the file; the result has positions in the file.
        check_crc: Whether to check CRCs.
        max_batches: The maximum number of batches; by default all.

    Cost: a header scan, and a CRC pass unless `check_crc` is off.
    """
    view = memoryview(buf).cast("B")
    parts: list[Table] = []
    found = at = 0
    error: DataCorruptionError | None = None
    while max_batches is None or found < max_batches:
        room = _CHUNK if max_batches is None else min(_CHUNK, max_batches - found)
        room = min(room, len(view) // 61 + 1)  # small reads must not allocate a large table
        columns = np.empty((room, kernel.COLUMNS), np.int64)
        rows, stop, stopped = kernel.walk(view, at, columns.data, room)
        good = _good_crcs(view, columns[:rows]) if check_crc else rows
        if good:
            parts.append(_table(columns[:good], position))
            found += good
        at = stop if good == rows else int(columns[good, kernel.POSITION])
        if good == rows and not stopped:
            continue
        try:  # distinguish damage, the end, and a batch of an older magic
            header = read_header(view, at, path=path, position=position, check_crc=check_crc)
        except DataCorruptionError as damage:
            error = damage
            break
        if header is None or (max_batches is not None and found >= max_batches):
            break
        parts.append(header_row(header, position + at))
        found += 1
        at += header.size
    table = parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, BATCH_DTYPE), *parts])
    return Batches(table, position + at, error)


def as_columns(table: Table) -> NDArray[np.int64]:
    """Return the table of a scan in the form of the compiled loops: a row of int64 per batch."""
    if len(table) <= _FEW:
        return np.array(table.tolist(), np.int64).reshape(len(table), len(_NAMES))
    columns = np.empty((len(table), len(_NAMES)), np.int64)
    for index, name in enumerate(_NAMES):
        columns[:, index] = table[name]
    return columns


def header_row(header: BatchHeader, position: int) -> Table:
    """Return a table with a single row for the batch at file position `position`."""
    return np.array(
        [
            (
                position,
                header.size,
                header.base_offset,
                header.last_offset,
                header.base_timestamp,
                header.max_timestamp,
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                header.count,
                header.attributes,
                header.leader_epoch,
                header.magic,
            )
        ],
        BATCH_DTYPE,
    )


def row_header(row: Any) -> BatchHeader:
    """Return the batch header in a row of a scan's table.

    The CRC of the header is 0, because tables do not have it.
    """
    return BatchHeader(
        base_offset=int(row["base_offset"]),
        length=int(row["size"]) - 12,
        leader_epoch=int(row["leader_epoch"]),
        magic=int(row["magic"]),
        attributes=int(row["attributes"]),
        last_offset_delta=int(row["last_offset"]) - int(row["base_offset"]),
        base_timestamp=int(row["base_timestamp"]),
        max_timestamp=int(row["max_timestamp"]),
        producer_id=int(row["producer_id"]),
        producer_epoch=int(row["producer_epoch"]),
        base_sequence=int(row["base_sequence"]),
        count=int(row["count"]),
    )


def stored_crcs(buf: Buffer, table: Table, position: int = 0) -> bytes:
    """Return the CRC fields of the batches v2 of a table, joined, 4 bytes each.

    Args:
        buf: The bytes that contain the batches.
        table: The batches, with positions in the file.
        position: The position of buf[0] in the file.
    """
    at = table["position"] - (position - _CRC_AT)
    if len(table) <= _FEW:
        view = memoryview(buf).cast("B")
        return b"".join([view[n : n + _CRC.size] for n in at.tolist()])
    fields: NDArray[np.uint8] = np.frombuffer(buf, np.uint8)[at[:, None] + np.arange(_CRC.size)]
    return fields.tobytes()


def misplaced_rows(table: Table, expected: int, gaps_below: int = 0) -> NDArray[np.bool_]:
    """Return a mask of the batches that do not start where the previous batch ends.

    The check is needed because no CRC covers base offsets.

    Args:
        table: The batches, in the order of the file.
        expected: The offset at which the first batch must start.
        gaps_below: Records below this offset may be missing because of compaction.
    """
    due = np.concatenate(([expected], table["last_offset"][:-1] + 1))[: len(table)]
    first = table["base_offset"]
    wrong: NDArray[np.bool_] = first != due
    if gaps_below:
        wrong &= (first < due) | (first > gaps_below)
    return wrong


def is_rewritten(table: Table) -> NDArray[np.bool_]:
    """Return a mask of batches that compaction or erasure rewrote.

    They have missing records or a delete horizon.
    """
    count = table["last_offset"] + 1 - table["base_offset"]
    rewritten: NDArray[np.bool_] = (table["count"] != count) | (
        table["attributes"] & DELETE_HORIZON != 0
    )
    return rewritten


def rebase(buf: bytearray | memoryview, base_offset: int, leader_epoch: int) -> int:
    """Add `base_offset` to the batches' offsets and set their leader epoch, in place.

    Args:
        buf: Complete batches v2 without other bytes, usually with offsets from 0.
        base_offset: The number to add to all offsets.
        leader_epoch: The leader epoch.

    Returns:
        The offset after the last batch; `base_offset` for an empty buffer.

    Raises:
        InvalidRequestError: The buffer has other data, which are not changed.

    Cost: touches only headers, because the CRC does not cover these fields.
    """
    if not len(buf):
        return base_offset
    end = kernel.renumber(memoryview(buf).cast("B"), base_offset, leader_epoch)
    if end < 0:
        raise InvalidRequestError(
            f"byte {-1 - end} of the data is not the start of a complete batch v2"
        )
    return end


def rebase_headers(table: Table, base_offset: int, leader_epoch: int) -> NDArray[np.void]:
    """Return the first 16 bytes that each batch would have after `rebase`, to patch a file.

    The result has a PREFIX_DTYPE row per batch. Write `row.tobytes()` at the batch's `position` in
    the table.
    """
    prefix = np.empty(len(table), PREFIX_DTYPE)
    prefix["base_offset"] = table["base_offset"] + base_offset
    prefix["length"] = table["size"] - 12
    prefix["leader_epoch"] = leader_epoch
    return prefix


def seal_all(view: memoryview, starts: list[int], ends: list[int]) -> None:
    """Compute and write the CRCs of the batches v2 at view[start:end], for each start and end."""
    for start, end in zip(starts, ends, strict=True):
        _CRC.pack_into(view, start + _CRC_AT, crc32c(view[start + CRC_START : end]))


def stamp(buf: bytearray | memoryview, starts: list[int], ends: list[int], when_ms: int) -> None:
    """Set the append time of batches v2 in place, as the timestamp of all their records.

    The batches are at buf[start:end], for each start and end. The attribute, the largest timestamp
    and the CRC are changed. The timestamps in the records stay. Cost: a CRC pass. Source:
    LogValidator, setMaxTimestamp.
    """
    view = memoryview(buf).cast("B")
    for start in starts:
        view[start + CRC_START + 1] |= LOG_APPEND_TIME
        _TIME.pack_into(view, start + _MAX_TIMESTAMP, when_ms)
    seal_all(view, starts, ends)


_CRC: Final = struct.Struct(">I")
_CRC_AT: Final = 17  # byte of a batch
_TIME: Final = struct.Struct(">q")
_MAX_TIMESTAMP: Final = 35


def _good_crcs(view: memoryview, columns: NDArray[np.int64]) -> int:
    """Return how many leading batches have a valid CRC."""
    starts = (columns[:, kernel.POSITION] + CRC_START).tolist()
    ends = (columns[:, kernel.POSITION] + columns[:, kernel.SIZE]).tolist()
    crcs = columns[:, kernel.CRC].tolist()
    for row, (start, end, crc) in enumerate(zip(starts, ends, crcs, strict=True)):
        if crc32c(view[start:end]) != crc:
            return row
    return len(crcs)


_FEW: Final = 4  # maximum rows for which tuples are faster than columns
_NAMES: Final = BATCH_DTYPE.names or ()
assert len(_NAMES) == kernel.CRC  # the table's columns, in the kernel's order


def _table(columns: NDArray[np.int64], position: int) -> Table:
    if len(columns) <= _FEW:
        table = np.array([tuple(row[:-1]) for row in columns.tolist()], BATCH_DTYPE)
    else:
        table = np.empty(len(columns), BATCH_DTYPE)
        for index, name in enumerate(_NAMES):
            table[name] = columns[:, index]
    if position:
        table["position"] += position
    return table
