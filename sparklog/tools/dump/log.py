"""Prints the batches and records of a `.log` file like kafka-dump-log."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from crc32c import crc32c

from sparklog.errors import DataCorruptionError, InvalidRequestError
from sparklog.format.batch import (
    CRC_START,
    HEADER_SIZE,
    LEGACY_SIZE_MIN,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_END,
)
from sparklog.format.compression import Codec
from sparklog.format.scan import Table, scan
from sparklog.fs import File
from sparklog.tools.dump.batch import DumpedBatch, last_sequence, read_batch
from sparklog.tools.dump.records import RecordLines
from sparklog.tools.dump.text import BatchHead, batch_line

WINDOW_BYTES: Final = 1 << 20
SIZE_MAX: Final = 2**31 - 1  # maximum size of a file that Kafka opens as a segment
_CODECS: Final = [codec.name.lower() for codec in Codec]


@dataclass(slots=True)
class LogDump:
    """The result of dumping a file, complete once all lines were consumed.

    Attributes:
        gaps: Pairs of offsets that are not consecutive.
        damaged: Whether a CRC is wrong, or bytes at the end are not a batch.
    """

    gaps: list[tuple[int, int]] = field(default_factory=list)
    damaged: bool = False
    last_offset: int = -1

    def follow(self, offsets: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> None:
        """Record gaps between the records' offsets."""
        if not len(offsets):
            return
        before = np.concatenate(([self.last_offset], offsets[:-1]))
        # Kafka uses -1 for "none yet", wherever it occurs.
        for at in np.flatnonzero((offsets != before + 1) & (before != -1)).tolist():
            self.gaps.append((int(before[at]), int(offsets[at])))
        self.last_offset = int(offsets[-1])


def size_of(file: File) -> int:
    """Return a segment's size.

    Raises:
        InvalidRequestError: The file is larger than any file that Kafka opens as a segment.
    """
    size = file.size()
    if size > SIZE_MAX:
        raise InvalidRequestError(
            f"{file.path} has {size} bytes; a segment has at most {SIZE_MAX}, so the file is not "
            "a segment"
        )
    return size


def whole_batch(file: File, at: int, end: int) -> int:
    """Return the size of the batch at byte `at`, or 0 if the batch is incomplete.

    Args:
        file: The file.
        at: The position of the batch.
        end: The end of the readable part of the file.

    Raises:
        DataCorruptionError: The batch has an invalid length.

    Source: FileLogInputStream.nextBatch.
    """
    return 0 if at >= end - MAGIC_END else _size(file, file.pread(LOG_OVERHEAD, at), at, end)


def _size(file: File, head: bytes, at: int, end: int) -> int:
    length = int.from_bytes(head[8:LOG_OVERHEAD], "big", signed=True)
    if length < LEGACY_SIZE_MIN:
        raise DataCorruptionError(
            f"batch length {length} is less than the minimum", path=file.path, position=at
        )
    return 0 if at > end - LOG_OVERHEAD - length else LOG_OVERHEAD + length


def batch_ahead(file: File, at: int, end: int) -> tuple[int, int]:
    """Return the size and last offset of the batch at byte `at`; (0, -1) if incomplete.

    Reads only the header. Also raises the errors of `whole_batch`.

    Raises:
        DataCorruptionError: The file ends within the header.
    """
    if at >= end - MAGIC_END:
        return 0, -1
    head = file.pread(HEADER_SIZE, at)
    size = _size(file, head, at, end)
    if not size:
        return 0, -1
    offset = int.from_bytes(head[:8], "big", signed=True)
    if head[16] > 127 or head[16] < MAGIC:
        return size, offset
    if len(head) < HEADER_SIZE:
        raise DataCorruptionError(
            "the file ends within a batch header", path=file.path, position=at
        )
    last = offset + int.from_bytes(head[23:27], "big", signed=True)
    return size, (last + 2**63) % 2**64 - 2**63  # as a Java long


def batch_at(file: File, at: int, size: int) -> DumpedBatch:
    """Read the batch of `size` bytes at byte `at`.

    Raises:
        DataCorruptionError: The batch is damaged, so Kafka's tool would throw here.
    """
    data = file.pread(max(size, HEADER_SIZE), at)
    return read_batch(
        memoryview(data)[:size], data[:HEADER_SIZE], path=file.path, position=at
    )


def dump_batches(
    file: File, *, max_bytes: int, lines: RecordLines | None, found: LogDump
) -> Iterator[bytes]:
    """Yield the lines of all batches, many lines at a time.

    Args:
        file: The `.log` file.
        max_bytes: Limits the part of the file that is read.
        lines: Formats the records; None prints no records.
        found: Records gaps and damage.

    Raises:
        DataCorruptionError: Kafka's tool throws here. The lines of all earlier positions were
            yielded before.
    """
    size = size_of(file)
    end = min(size, max_bytes)
    at, span = 0, WINDOW_BYTES
    while at < end:
        data = memoryview(file.pread(min(span, end - at), at))
        # Without CRCs: Kafka's tool prints batches with a wrong CRC, as isvalid: false.
        table = scan(data, path=file.path, position=at, check_crc=False).table
        table = table[table["magic"] == 2] if not (table["magic"] == 2).all() else table
        table = _leading(table, at)
        if len(table):
            yield from _dump_run(file, data, table, at, lines, found)
            at, span = int(table["position"][-1] + table["size"][-1]), WINDOW_BYTES
            continue
        whole = whole_batch(file, at, end)
        if not whole:
            break
        if whole > len(data):  # larger than the window
            if span >= whole:
                raise DataCorruptionError(
                    "the file became shorter while it was read", path=file.path, position=at
                )
            span = whole
            continue
        batch = batch_at(file, at, whole)
        yield batch_line(batch).encode()
        found.damaged |= not batch.is_valid
        if lines is not None:
            yield from _dump_one_by_one(batch, lines, found)
        at += whole
    # With --max-bytes the dump ends within the file, so bytes after the last batch are no damage.
    if size > at and max_bytes == SIZE_MAX:
        found.damaged = True
        name = os.path.basename(file.path)
        yield f"Found {size - at} invalid bytes at the end of {name}\n".encode()


def _leading(table: Table, at: int) -> Table:
    """Return the rows of contiguous batches from byte `at` on.

    Batches of magic 0 and 1 are missing in the table, so the position after such a batch is not
    contiguous.
    """
    ends = np.concatenate(([at], (table["position"] + table["size"])[:-1]))
    broken = np.flatnonzero(table["position"] != ends[: len(table)])
    return table[: broken[0]] if len(broken) else table


def _dump_run(
    file: File,
    data: memoryview,
    table: Table,
    position: int,
    lines: RecordLines | None,
    found: LogDump,
) -> Iterator[bytes]:
    """Yield the lines of valid v2 batches in `data`."""
    heads = _batch_lines(data, table, position, found)
    if lines is None:
        yield "".join(heads).encode()
        return
    row = 0
    while row < len(table):
        made = lines.many(data, table[row:], position)
        if made is None:
            yield heads[row].encode()
            yield from _dump_one_by_one(_batch_in(file, data, table[row], position), lines, found)
            row += 1
            continue
        pieces: list[bytes | memoryview] = []
        followed = 0
        for number, is_control in enumerate(made.is_control):
            pieces.append(heads[row + number].encode())
            if not is_control:
                pieces.append(made.text[made.cuts[number] : made.cuts[number + 1]])
                continue
            # Before the control batch, because its marker may raise: the earlier lines must have
            # been printed then, and gaps must be found in the order of offsets.
            yield b"".join(pieces)
            found.follow(made.offsets[followed : made.ends[number]])
            pieces, followed = [], made.ends[number]
            batch = _batch_in(file, data, table[row + number], position)
            yield from _dump_one_by_one(batch, lines, found)
        yield b"".join(pieces)
        found.follow(made.offsets[followed:])
        row += len(made.is_control)


def _batch_in(file: File, data: memoryview, row: Any, position: int) -> DumpedBatch:
    start = int(row["position"]) - position
    raw = data[start : start + int(row["size"])]
    return read_batch(raw, bytes(raw[:HEADER_SIZE]), path=file.path, position=position + start)


def _dump_one_by_one(batch: DumpedBatch, lines: RecordLines, found: LogDump) -> Iterator[bytes]:
    for offset, line in lines.one_by_one(batch):
        found.follow(np.array([offset], np.int64))
        yield line


def _batch_lines(
    data: memoryview, table: Table, position: int, found: LogDump
) -> list[str]:
    """Return a line for each valid v2 batch."""
    made = []
    for at, size, base, last, base_time, max_time, *rest in table.tolist():
        producer, producer_epoch, sequence, count, attributes, epoch, _ = rest
        start = at - position
        crc = int.from_bytes(data[start + MAGIC_END : start + CRC_START], "big")
        valid = crc == crc32c(data[start + CRC_START : start + size])
        if not valid:
            found.damaged = True
        final = last_sequence(sequence, last - base)
        head = BatchHead(
            base, last, count, sequence, final, producer, producer_epoch, epoch, attributes,
            base_time,
        ).text()  # fmt: skip
        made.append(
            f"{head} position: {at} {'LogAppendTime' if attributes & 8 else 'CreateTime'}: "
            f"{max_time} size: {size} magic: 2 compresscodec: {_CODECS[attributes & 7]} "
            f"crc: {crc} isvalid: {'true' if valid else 'false'}\n"
        )
    return made
