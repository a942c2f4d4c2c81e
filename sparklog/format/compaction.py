"""Compaction of batches: the newest offset of each key, and the records of a batch that stay.

An `OffsetMap` collects the keys of a part of a log in a fixed number of bytes. A `RecordFilter`
copies batches without the records that the map supersedes. A record stays if its offset is behind
the map, or if it has a key without a newer record, and has a value (or is a tombstone that has not
expired).

A batch keeps its base offset, last offset, sequence, producer, leader epoch and codec. Count,
largest timestamp and base timestamp are computed from the remaining records. A batch with a
tombstone gets attribute bit 6 and a *delete horizon* instead of the base timestamp; after that time
its tombstones may be dropped. Unchanged batches are copied byte for byte. Source: SkimpyOffsetMap,
Cleaner, MemoryRecords.filterTo (Kafka 4.1).
"""

import itertools
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import IntFlag
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sparklog.errors import DataCorruptionError, InvalidRequestError
from sparklog.format.batch import (
    CODEC_MASK,
    DELETE_HORIZON,
    HEADER_SIZE,
    LOG_OVERHEAD,
    BatchHeader,
    Buffer,
    encode_empty,
    seal,
)
from sparklog.format.columns import allocate
from sparklog.format.compression import Codec, compress, decompress
from sparklog.format.offset_map import FOLDED, MAP_FULL, MAP_SMALL, PENDING, OffsetMapKernel
from sparklog.format.parser import FAULTS
from sparklog.format.record_filter import RecordFilterKernel
from sparklog.format.scan import Table, as_columns, row_header, seal_all

SLOT_BYTES: Final = 24
LOAD_FACTOR: Final = 0.9  # log.cleaner.io.buffer.load.factor
_SHARD_SLOTS_MIN: Final = 16384  # fewer: one shard might overflow before the others are full
_SHARDS: Final = 16
USED_MIN: Final = 1024
_FILL: Final = 0.7  # the table grows at this share of its slots, up to the bound
_RECORD_GROWTH: Final = 20  # bytes by which the first varints of a record can grow
_OUT_BYTES: Final = 1 << 20


class Verdict(IntFlag):
    """How compaction processes a batch: flags that are decided by the batch's header.

    DISCARD drops all records; RETAIN keeps all records, whatever the offset map contains; EMPTY
    keeps the header if no record stays; MARK gives the batch a delete horizon (it is the marker of
    a transaction without data); TOMBSTONES keeps the newest null values. The kernel uses the same
    values.
    """

    DISCARD = 1  # drop all records
    RETAIN = 2  # keep all records, regardless of the map
    EMPTY = 4  # keep the header if no record stays
    MARK = 8  # the marker of an emptied transaction, which gets a delete horizon
    TOMBSTONES = 16  # null values stay


class OffsetMap:
    """A map from keys to their newest offsets, with a limit on memory. Not thread-safe.

    The map has space for memory_bytes / 24 * load_factor keys, as in Kafka. The table starts small,
    because a table that fits the CPU cache is several times faster, and grows shard by shard, which
    needs up to 1/32 more memory.

    Raises:
        InvalidRequestError: The memory is not sufficient for a key, or the load factor exceeds 1.
    """

    def __init__(self, memory_bytes: int, load_factor: float = LOAD_FACTOR) -> None:
        slots = memory_bytes // SLOT_BYTES
        limit = int(slots * load_factor)
        if limit < 1 or load_factor > 1:
            raise InvalidRequestError(
                f"an offset map of {memory_bytes} bytes with load factor {load_factor} has room "
                f"for {limit} keys: increase log.cleaner.dedupe.buffer.size (24 bytes per key), "
                "with log.cleaner.io.buffer.load.factor in (0, 1]"
            )
        self._shards = _SHARDS if slots >= _SHARDS * _SHARD_SLOTS_MIN and load_factor < 0.95 else 1
        self._region = slots // self._shards
        # Zeroed pages cost no memory before they are used, and the table starts small.
        self._table = np.zeros((self._shards * self._region, 3), np.uint64)
        self._pending = np.zeros((PENDING, 3), np.uint64)
        self._used = min(self._region, USED_MIN)
        # Secret, so that a client can't choose keys that collide and would delete other records.
        self.keys = OffsetMapKernel(secrets.randbits(64), secrets.randbits(64), limit)
        self._show()

    def __len__(self) -> int:
        return int(self.keys.entries)

    @property
    def utilization(self) -> float:
        """The share of used slots (Kafka's max-buffer-utilization)."""
        return len(self) / len(self._table)

    @property
    def latest(self) -> int:
        """The offset up to which all records are in the map; -1 for none."""
        return int(self.keys.latest)

    def skip_to(self, offset: int) -> None:
        """Record that the records up to and including `offset` need not be added: set `latest`."""
        self.keys.latest = offset

    def get(self, key: bytes) -> int:
        """Return the newest offset of a key, or -1."""
        return int(self.keys.get(memoryview(key)))

    def _show(self) -> None:
        grows = self._used < self._region
        room = int(self._used * self._shards * _FILL) if grows else 0
        self.keys.set_table(
            self._table.data, self._pending.data, self._shards, self._region, self._used, room
        )

    def _grow(self, needed: int) -> None:
        before, used = self._used, self._used
        while used < self._region and int(used * self._shards * _FILL) < needed:
            used = min(2 * used, self._region)
        self._used = used
        self._show()
        for first in range(0, len(self._table), self._region):
            old = self._table[first : first + before].copy()
            self._table[first : first + before] = 0  # a key's slot depends on the size in use
            self.keys.refill(old.data)

    def fold(self, buf: Buffer, batches: Table, *, first: int, path: str, position: int) -> bool:
        """Add the keys of batches v2 of records, with the offsets from `first` on.

        Args:
            buf: Bytes of a file that contain the batches.
            batches: Rows of the table of a scan, with positions in the file.
            first: Records below this offset are not added.
            path: The file, for errors.
            position: The position of buf[0] in the file.

        Returns:
            False if the map is full. A full map stops inside a batch; `latest` is then the last
            offset that was added.

        Raises:
            DataCorruptionError: A record is damaged.
        """
        view = memoryview(buf)
        for plain, part in _runs(batches):
            folded = self._fold_plain if plain else self._fold_packed
            if not folded(view, part, first, path, position):
                return False
        return True

    def _fold_plain(
        self, view: memoryview, part: Table, first: int, path: str, position: int
    ) -> bool:
        table, row = as_columns(part), 0
        while row < len(table):
            row, status = self.keys.fold_many(view, table.data, row, position, first)
            if status == MAP_SMALL:
                self._grow(len(self) + int(part["count"][row]))
            elif status == MAP_FULL:
                return False
            elif status != FOLDED:
                raise damage(status, part[row], path, self.keys.fault_at + position)
        return True

    def _fold_packed(
        self, view: memoryview, part: Table, first: int, path: str, position: int
    ) -> bool:
        for row in part:
            records = unpacked(view, row, path, position)
            base, last, count = (int(row[n]) for n in ("base_offset", "last_offset", "count"))
            while True:
                status = self.keys.fold(records, 0, len(records), count, base, last, first)
                if status != MAP_SMALL:
                    break
                self._grow(len(self) + count)
            if status == MAP_FULL:
                return False
            if status != FOLDED:
                raise damage(status, row, path, int(row["position"]))
        return True


@dataclass(frozen=True, slots=True)
class Filtered:
    """A piece of output: the first `size` bytes of `out` are complete batches.

    The caller must write them before it requests the next piece, which reuses the memory.
    """

    out: memoryview
    size: int


class RecordFilter:
    """Copies batches without the records that a newer record of their key supersedes.

    Not thread-safe.

    Args:
        offsets: The newest offset of each key.
        horizon: The delete horizon (ms) for batches with tombstones.
    """

    def __init__(self, offsets: OffsetMap, *, horizon: int) -> None:
        self._keys, self._horizon = offsets.keys, horizon
        self._kernel = RecordFilterKernel(offsets.keys)
        self._out = allocate(_OUT_BYTES)
        self._places = np.empty((0, 5), np.int64)
        self._sealed = np.empty(0, np.int64)
        self.rewritten = 0  # number of changed batches

    @property
    def records(self) -> tuple[int, int]:
        """The number of records that were read so far, and the number of records that are retained.

        Records of batches that were discarded as a whole are in neither number.
        """
        return int(self._kernel.records_read), int(self._kernel.records_kept)

    def filter(
        self,
        buf: Buffer,
        batches: Table,
        verdicts: NDArray[np.uint8],
        *,
        path: str,
        position: int,
    ) -> Iterator[Filtered]:
        """Yield the remaining bytes of batches v2, in pieces.

        Args:
            buf: Bytes of a file that contain the batches.
            batches: Rows of the table of a scan, with positions in the file.
            verdicts: A `Verdict` per batch.
            path: The file, for errors.
            position: The position of buf[0] in the file.

        Raises:
            DataCorruptionError: A record is damaged.
        """
        view = memoryview(buf)
        # A discarded batch that must leave its header (EMPTY) is processed too.
        stays = (verdicts & (Verdict.DISCARD | Verdict.EMPTY)) != Verdict.DISCARD
        batches, verdicts = batches[stays], np.ascontiguousarray(verdicts[stays])
        if len(batches) and int(batches["count"].max()) > len(self._places):
            most = int(batches["count"].max())
            self._places = np.empty((most + most // 4, 5), np.int64)
            self._kernel.set_places(self._places.data)
        at = 0
        for plain, part in _runs(batches):
            filtered = self._plain if plain else self._packed
            yield from filtered(view, part, verdicts[at : at + len(part)], path, position)
            at += len(part)

    def _plain(
        self, view: memoryview, part: Table, verdicts: NDArray[np.uint8], path: str, position: int
    ) -> Iterator[Filtered]:
        table, row = as_columns(part), 0
        if len(self._sealed) < len(part):
            self._sealed = np.empty(len(part), np.int64)
        while row < len(table):
            row, size, status = self._kernel.filter_many(
                view,
                table.data,
                verdicts.data,
                row,
                position,
                self._out,
                0,
                self._horizon,
                self._sealed.data,
            )
            self._seal(size)
            if size:
                yield Filtered(self._out, size)
            if status == MAP_SMALL and not size:
                self._reserve(int(part["size"][row]), int(part["count"][row]))
            elif status not in (FOLDED, MAP_SMALL):
                raise damage(status, part[row], path, self._keys.fault_at + position)

    def _seal(self, size: int) -> None:
        starts = self._sealed[: self._kernel.seals].tolist()
        self.rewritten += len(starts)
        ends = [
            at + LOG_OVERHEAD + int.from_bytes(self._out[at + 8 : at + 12], "big") for at in starts
        ]
        assert not ends or ends[-1] <= size
        seal_all(self._out, starts, ends)

    def _reserve(self, size: int, count: int) -> None:
        needed = size + _RECORD_GROWTH * count + 2 * HEADER_SIZE
        if len(self._out) < needed:
            self._out = allocate(needed)

    def _packed(
        self, view: memoryview, part: Table, verdicts: NDArray[np.uint8], path: str, position: int
    ) -> Iterator[Filtered]:
        """Filter compressed batches, and decompress a single batch at a time.

        Each result contains several batches.
        """
        size = 0
        for row, verdict in zip(part, verdicts.tolist(), strict=True):
            made = self._repacked(view, row, verdict, path, position)
            if made is None:
                continue
            if size + len(made) > len(self._out):
                if size:
                    yield Filtered(self._out, size)
                size = 0
                self._reserve(len(made), 0)
            self._out[size : size + len(made)] = made
            size += len(made)
        if size:
            yield Filtered(self._out, size)

    def _repacked(
        self, view: memoryview, row: Any, verdict: int, path: str, position: int
    ) -> memoryview | bytearray | bytes | None:
        kernel, header = self._kernel, row_header(row)
        records = unpacked(view, row, path, position)
        status = kernel.select(
            records, 0, len(records), header.count, header.base_offset, header.last_offset, verdict
        )
        if status != FOLDED:
            raise damage(status, row, path, int(row["position"]))
        kernel.records_read += header.count
        kernel.records_kept += kernel.kept
        if not kernel.kept:
            return encode_empty(header) if verdict & Verdict.EMPTY else None
        marked = header.delete_horizon_ms is not None
        marks = not marked and bool(kernel.tombstones or verdict & Verdict.MARK)
        if kernel.kept == header.count and not marks:
            at = int(row["position"]) - position
            return view[at : at + header.size]
        self.rewritten += 1
        return written(kernel, header, records, marks=marks, horizon=self._horizon)


def written(
    kernel: RecordFilterKernel,
    header: BatchHeader,
    records: memoryview,
    *,
    marks: bool = False,
    horizon: int = -1,
) -> bytearray:
    """Return a batch with the records that `kernel.select` has chosen, in the codec of `header`.

    Source: MemoryRecords.buildRetainedRecordsInto.

    Args:
        kernel: The filter, with at least one chosen record.
        header: The header of the old batch.
        records: The uncompressed records of the old batch.
        marks: Whether the new batch gets the delete horizon `horizon`.
        horizon: The delete horizon (ms), after which tombstones may be dropped.
    """
    marked = header.delete_horizon_ms is not None
    plain = allocate(len(records) + _RECORD_GROWTH * kernel.kept + HEADER_SIZE)
    end = kernel.write(
        records,
        plain,
        0,
        header.base_timestamp,
        0 if header.log_append_time is None else 1,
        header.max_timestamp,
        horizon if marks else header.base_timestamp,
        marks or marked,
    )
    body = compress(header.codec, plain[:end])
    append_time = header.log_append_time
    changed = replace(
        header,
        length=HEADER_SIZE - LOG_OVERHEAD + len(body),
        attributes=header.attributes | (DELETE_HORIZON if marks else 0),
        base_timestamp=kernel.base_time,
        max_timestamp=kernel.largest if append_time is None else append_time,
        count=kernel.kept,
    )
    batch = bytearray(changed.pack() + body)
    seal(batch)
    return batch


def unpacked(view: memoryview, row: Any, path: str, position: int) -> memoryview:
    """Return the uncompressed records of a batch v2.

    Args:
        view: Bytes of a file that contain the batch.
        row: The batch's row in the table of a scan.
        path: The file, for errors.
        position: The position of view[0] in the file.
    """
    at, size = int(row["position"]) - position, int(row["size"])
    if size == HEADER_SIZE:
        return view[:0]
    codec = Codec(int(row["attributes"]) & CODEC_MASK)
    packed = view[at + HEADER_SIZE : at + size]
    return memoryview(decompress(codec, packed, path=path, position=int(row["position"])))


def _runs(batches: Table) -> Iterator[tuple[bool, Table]]:
    """Yield (whether uncompressed, batches) for adjacent batches of the same kind."""
    if len(batches):
        plain = (batches["attributes"] & CODEC_MASK) == 0
        cuts = [0, *(np.flatnonzero(plain[1:] != plain[:-1]) + 1).tolist(), len(batches)]
        for low, high in itertools.pairwise(cuts):
            yield bool(plain[low]), batches[low:high]


def damage(status: int, row: Any, path: str, at: int) -> DataCorruptionError:
    """Return the error for a batch (`row` of a scan) whose records the kernel can't read.

    `status` is the kernel's, and `at` the position of the damage in the file.
    """
    return DataCorruptionError(
        f"{FAULTS[status]}; the batch was not rewritten",
        path=path,
        position=at,
        first=int(row["base_offset"]),
        end=int(row["last_offset"]) + 1,
    )
