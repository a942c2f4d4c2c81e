"""Checks of batches to append, and of batches that are read again."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparklog.errors import DataCorruptionError, InvalidRequestError, RecordTooLargeError
from sparklog.format.batch import HEADER_SIZE, OFFSET_MAX
from sparklog.format.scan import Batches, misplaced_rows, scan, stamp, stored_crcs
from sparklog.fs import File
from sparklog.log.batch_windows import walk

Table = NDArray[Any]


def scan_file(file: File) -> tuple[Batches, bytes]:
    """Return the complete batches of a file and their CRC fields, which are not checked.

    Memory is bounded. Mapping the file would be faster, but its pages would count as memory of this
    process.
    """
    windows: list[Batches] = []
    crcs: list[bytes] = []
    for window in walk(file, check_crc=False):
        windows.append(window.batches)
        crcs.append(stored_crcs(window.data, window.batches.table, window.position))
    if not windows:
        return scan(b"", path=file.path), b""
    tables = np.concatenate([found.table for found in windows])
    return Batches(tables, windows[-1].end, windows[-1].error), b"".join(crcs)


def stamp_file(file: File, size: int, when_ms: int) -> None:
    """Set the append time of the batches in the first `size` bytes of a staged file; see `stamp`.

    Can be repeated after a failure. Cost: a pass over the file; a CRC and a write per batch.
    """
    for window in walk(file, limit=size, check_crc=False):
        data, table = bytearray(window.data), window.batches.table
        starts = (table["position"] - window.position).tolist()
        ends = (table["position"] - window.position + table["size"]).tolist()
        stamp(data, starts, ends, when_ms)
        for start in starts:
            file.pwrite(bytes(data[start : start + HEADER_SIZE]), window.position + start)


def checked(found: Batches, size: int, *, what: str, batch_bytes_max: int) -> Table:
    """Return the table of scanned batches; they must be complete v2 batches without offset gaps.

    The scan checks CRCs, this function doesn't.

    Args:
        found: The result of a scan.
        size: The number of bytes that the batches must fill.
        what: The source of the batches, for messages.
        batch_bytes_max: The size of a segment, which no batch may exceed.

    Raises:
        InvalidRequestError: The batches are malformed.
        RecordTooLargeError: A batch exceeds the size of a segment.
    """
    table = found.table
    if found.error is not None or found.end != size:
        reason = found.error.reason if found.error else "the last batch is incomplete"
        raise InvalidRequestError(f"{what} is damaged at byte {found.end}: {reason}")
    if not len(table):
        return table
    gaps = table["base_offset"][1:] != table["last_offset"][:-1] + 1
    if gaps.any() or (table["magic"] != 2).any():
        raise InvalidRequestError(f"{what} must consist of v2 batches without offset gaps")
    largest = int(table["size"].max())
    if largest > batch_bytes_max:
        raise RecordTooLargeError(
            f"{what}: a record batch of {largest} bytes exceeds segment.bytes={batch_bytes_max}; "
            "raise segment.bytes, or make the batches smaller"
        )
    return table


def out_of_order(table: Table, expected: int, limit: int, *, gaps: bool) -> int:
    """Return the index of the first batch with impossible offsets, or -1.

    Args:
        table: The batches, in file order.
        expected: The offset at which the first batch must start; with `gaps`, the lowest offset.
        limit: An offset at which a batch must end, such as the base of the next segment: no batch
            may contain offsets on both sides.
        gaps: Whether offsets may be missing between batches, as after compaction.
    """
    wrong = misplaced_rows(table, expected, OFFSET_MAX if gaps else 0)
    wrong |= (table["base_offset"] < limit) & (table["last_offset"] >= limit)
    hits = np.flatnonzero(wrong)
    return int(hits[0]) if len(hits) else -1


def misplaced(path: str, row: Any, expected: int) -> DataCorruptionError:
    """Return the error for a batch with impossible offsets.

    Args:
        path: The segment file.
        row: The batch, a row of a scan's table.
        expected: The offset that was expected at the batch's position.
    """
    return DataCorruptionError(
        f"a batch of offsets {row['base_offset']}..{row['last_offset']} is at the position of "
        f"offset {expected}",
        path=path,
        position=int(row["position"]),
        first=expected,
    )
