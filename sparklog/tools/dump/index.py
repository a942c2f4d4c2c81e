"""Prints offset indexes, transaction indexes and producer snapshots like kafka-dump-log."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from crc32c import crc32c

from sparklog.errors import DataCorruptionError, InvalidRequestError
from sparklog.format import producer_snapshot
from sparklog.format.batch import SEQUENCE_MAX
from sparklog.format.index import OFFSET_ENTRY, TXN_ENTRY, Entries
from sparklog.format.names import LOG
from sparklog.fs import File, FileSystem, read_bytes
from sparklog.tools.dump.log import batch_ahead, size_of

_LINES: Final = 4096  # yielded at once


@dataclass(slots=True)
class IndexFaults:
    """Mismatches between an index and the log, as pairs of values.

    Attributes:
        times: For a time index: (timestamp in the index, timestamp of the batch).
        order: (timestamp in the index, previous timestamp in the index).
        missing: (offset in the index, last offset of the batch that was found, or -1).
    """

    offsets: list[tuple[int, int]] = field(default_factory=list)
    times: list[tuple[int, int]] = field(default_factory=list)
    order: list[tuple[int, int]] = field(default_factory=list)
    missing: list[tuple[int, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexStyle:
    """The checks to run on an index.

    Attributes:
        sanity_only: Run only the sanity check of a starting broker, and print no entries.
        verify_only: Compare the index with the log, and print no entries.
        max_message_size: The maximum size of a batch in bytes.
    """

    sanity_only: bool = False
    verify_only: bool = False
    max_message_size: int


def base_of(path: str) -> int:
    """Return the base offset in a file's name.

    Raises:
        InvalidRequestError: The name does not begin with an offset.
    """
    stem = os.path.basename(path).partition(".")[0]
    if not (stem.removeprefix("-").removeprefix("+").isascii() and _is_number(stem)):
        raise InvalidRequestError(
            f"{path}: the file name must begin with an offset, as 00000000000000000000 does"
        )
    return int(stem)


def _is_number(stem: str) -> bool:
    digits = stem[1:] if stem[:1] in ("-", "+") else stem
    return digits.isdigit() and -(2**63) <= int(stem) < 2**63


def beside(path: str, suffix: str) -> str:
    """Return the path of another file of the same segment."""
    stem = os.path.basename(path).partition(".")[0]
    return os.path.join(os.path.dirname(path), stem + suffix)


def whole_entries(fs: FileSystem, path: str, dtype: "np.dtype[np.void]") -> tuple[Entries, int]:
    """Return the complete entries of an index file, and the number of extra bytes."""
    raw = read_bytes(fs, path)
    odd = len(raw) % dtype.itemsize
    return np.frombuffer(raw[: len(raw) - odd], dtype), odd


def dump_index(
    fs: FileSystem, path: str, style: IndexStyle, faults: IndexFaults
) -> Iterator[bytes]:
    """Yield the lines of an offset index.

    Raises:
        DataCorruptionError: The index is damaged, so Kafka's tool would throw here.
    """
    base = base_of(path)
    with fs.open(beside(path, LOG)) as log:
        end = size_of(log)
        entries, odd = whole_entries(fs, path, OFFSET_ENTRY)
        relatives = entries["relative_offset"].tolist()
        if not relatives:
            yield f"{path} is empty.\n".encode()
            return
        if style.sanity_only:
            if relatives[-1] < 0 or odd:
                raise DataCorruptionError(insane(odd, OFFSET_ENTRY.itemsize), path=path)
            yield f"{path} passed sanity check.\n".encode()
            return
        lines = []
        for number, (relative, position) in enumerate(entries.tolist()):
            # A broker preallocates the active segment's index and trims it when the segment rolls.
            # Only the first entry can have the relative offset 0.
            if relative == 0 and number:
                break
            last = _last_offset(log, position, end, style.max_message_size, path, number)
            if last != base + relative:
                faults.offsets.append((base + relative, last))
            if not style.verify_only:
                lines.append(f"offset: {base + relative} position: {position}\n")
            if len(lines) == _LINES:
                yield "".join(lines).encode()
                lines = []
        yield "".join(lines).encode()


def insane(odd: int, width: int) -> str:
    """Return the reason for a failed sanity check of an index, and the remedy.

    Args:
        odd: The number of bytes after the last complete entry.
        width: The size of an entry in bytes.
    """
    why = f"{odd} bytes are left over, an entry has {width}" if odd else (
        "the last entry is before the first"
    )  # fmt: skip
    return f"{why}; `sparklog verify --repair` rebuilds the index"


def _last_offset(log: File, at: int, end: int, most: int, path: str, number: int) -> int:
    """Return the last offset of the batch that an entry points to."""
    size, last = batch_ahead(log, at, min(end, at + most)) if 0 <= at <= end else (0, -1)
    if not size:
        reach = f"there is no complete batch of up to {most} bytes (--max-message-size)"
        raise DataCorruptionError(
            f"entry {number} points to byte {at} of {log.path}: {reach}", path=path
        )
    return last


def dump_txn_index(fs: FileSystem, path: str) -> Iterator[bytes]:
    """Yield the lines of an index of aborted transactions.

    Raises:
        DataCorruptionError: An entry has an unknown version.
    """
    base_of(path)
    entries, _ = whole_entries(fs, path, TXN_ENTRY)
    for version, producer, first, last, stable in entries.tolist():
        if (version := version >> 8) > 0:
            raise DataCorruptionError(f"an entry has the unknown version {version}", path=path)
        yield (
            f"version: {version} producerId: {producer} firstOffset: {first} "
            f"lastOffset: {last} lastStableOffset: {stable}\n"
        ).encode()


def dump_snapshot(fs: FileSystem, path: str) -> Iterator[bytes]:
    """Yield the lines of a producer snapshot.

    Bytes after the entries are ignored if the CRC is correct. Kafka's reader does the same; the
    engine's reader is stricter.

    Raises:
        DataCorruptionError: The snapshot is damaged.
    """
    for entry in _producers(read_bytes(fs, path), path):
        producer, epoch, last_sequence, last, delta, timestamp, coordinator, first = entry
        txn = f"OptionalLong[{first}]" if first >= 0 else "OptionalLong.empty"
        line = (
            f"producerId: {producer} producerEpoch: {epoch} coordinatorEpoch: {coordinator} "
            f"currentTxnFirstOffset: {txn} lastTimestamp: {timestamp} "
        )
        if last >= 0:
            line += (
                f"firstSequence: {(last_sequence - delta) & SEQUENCE_MAX} "
                f"lastSequence: {last_sequence} lastOffset: {last} offsetDelta: {delta} "
                f"timestamp: {timestamp}"
            )
        yield (line + "\n").encode()


def _producers(raw: bytes, path: str) -> list[tuple[int, ...]]:
    """Return the entries of a snapshot. Error messages are Kafka's."""
    schema = "Snapshot failed schema validation: "
    if len(raw) >= 2 and (version := int.from_bytes(raw[:2], "big", signed=True)) != 1:
        reason = f"{schema}Snapshot contained an unknown file version {version}"
        raise DataCorruptionError(reason, path=path)
    if len(raw) < producer_snapshot.HEAD.size:
        raise DataCorruptionError(f"{schema}null", path=path)
    _, crc, count = producer_snapshot.HEAD.unpack_from(raw)
    body = memoryview(raw)[producer_snapshot.HEAD.size :]
    reason = ""
    if count < 0:
        reason = f"{schema}non-nullable field producerEntries was serialized as null"
    elif count > len(body):
        reason = (
            f"{schema}Tried to allocate a collection of size {count}, but there are only "
            f"{len(body)} bytes remaining."
        )
    elif count * producer_snapshot.ENTRY.size > len(body):
        reason = f"{schema}null"
    elif crc != (actual := crc32c(raw[6:])):
        reason = (
            f"Snapshot is corrupt (CRC is no longer valid). Stored crc: {crc}. Computed crc: "
            f"{actual}"
        )
    if reason:
        raise DataCorruptionError(reason, path=path)
    return list(producer_snapshot.ENTRY.iter_unpack(body[: count * producer_snapshot.ENTRY.size]))
