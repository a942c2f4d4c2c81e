"""Places a commit's chunks: inline in the entry, in staged objects, or by an extent table.

A writer uses it before it creates an entry:

    placement = Placement(store, log_id, chunks, keyring=None)
    placed = placement.place(head)                     # maybe a PUT
    extents = settled(placed.extents, ends, epoch=3)   # for each attempt, whatever the ends are
    store.create(name, encode(number, Entry(..., extents=extents, keys=placed.keys), placed.data))

The result does not depend on the entry's number or the end offsets, so objects that were written
for an attempt serve all later attempts.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

import crc32c
import numpy as np
from numpy.typing import NDArray

from sparklog.common import TopicPartition
from sparklog.diskless import extent_tables
from sparklog.diskless.entries import ObjectKey
from sparklog.diskless.extent_tables import Pieces, TableHead
from sparklog.diskless.extents import PIECE_DTYPE, Extent
from sparklog.diskless.names import new_staged_name
from sparklog.diskless.object_keys import TaskKey, from_text, new_object_key, rewrap_key
from sparklog.diskless.staged_chunks import StagedChunks
from sparklog.format.scan import rebase
from sparklog.fs import Buffer
from sparklog.storage.chunk_table import IN_MEMORY
from sparklog.storage.commits import Chunk
from sparklog.tiered.keyring import Keyring
from sparklog.tiered.object_store.store import Store

PlacedExtents = tuple[tuple[TopicPartition, Extent], ...]

IN_DATA: Final = 0
"""Object number of a chunk in memory."""
INLINE_BYTES_MAX: Final = 256 << 10
"""Maximum inline data of all partitions together, because all followers read the entries."""
TABLE_EXTENTS_MIN: Final = 256
"""Extents from which a commit uses a table, if that halves their number."""
_LABEL: Final = "chunks"
_TABLE_LABEL: Final = "table"


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A commit's extents, each from offset 0; `settled` assigns the offsets.

    Attributes:
        data: The entry's inline bytes, encrypted if there is a keyring.
        keys: The data keys of the entry.
        staged: The objects that `place` wrote. Their names contain the head.
    """

    extents: PlacedExtents = ()
    data: bytes = b""
    keys: Mapping[str, ObjectKey] = field(default_factory=dict)
    staged: tuple[str, ...] = ()


def settled(
    extents: PlacedExtents,
    ends: Mapping[TopicPartition, int],
    *,
    epoch: int,
    stamps: Mapping[str, int] | None = None,
) -> PlacedExtents:
    """Return the extents with their committed offsets, leader epoch and append time.

    Args:
        extents: The extents, each with offsets from 0.
        ends: The end offsets of the partitions, where the extents begin.
        epoch: The log's leader epoch.
        stamps: {topic: ms} of topics with message.timestamp.type=LogAppendTime.
    """
    at = dict(ends)
    numbered = []
    for key, extent in extents:
        base = at[key]
        at[key] = base + extent.end
        stamp_ms = (stamps or {}).get(key.topic, -1)
        latest = extent.max_timestamp if stamp_ms < 0 else stamp_ms
        numbered.append(
            (
                key,
                extent._replace(
                    base=base, end=at[key], epoch=epoch, stamp_ms=stamp_ms, max_timestamp=latest
                ),
            )
        )
    return tuple(numbered)


class Placement:
    """The chunks of a call, in order, for any number of attempts to create an entry.

    Not thread-safe. With `keyring`, objects and inline data are encrypted with new data keys.
    """

    def __init__(
        self,
        store: Store,
        log_id: str,
        chunks: Sequence[Chunk],
        *,
        keyring: Keyring | None = None,
        label: str = _LABEL,
    ) -> None:
        self._store, self._log_id, self._ring, self._label = store, log_id, keyring, label
        self._sources = _Sources()
        self._rows = self._sources.rows(chunks)
        self._placed: dict[bool, Placed] = {}

    def place(self, head: int, *, inline_bytes_max: int = INLINE_BYTES_MAX) -> Placed:
        """Return the locations of all chunks. Writes objects if needed, only once for all calls.

        Args:
            head: the newest known entry; part of the names of staged objects.
            inline_bytes_max: limit of inline data. Lower after lost races: a smaller entry is
                quicker, and staged data cross the network only once.

        Raises:
            StorageUnavailableError: A PUT failed.
            InvalidRequestError: Tasks have encrypted chunks, but there is no key ring.
        """
        inline = self._sources.data_bytes <= inline_bytes_max
        if inline not in self._placed:
            placed = self._placed[inline] = self._place(head, inline)
            if not placed.data:  # without inline data the result is the same for both limits
                self._placed = {True: placed, False: placed}
        return self._placed[inline]

    def _place(self, head: int, inline: bool) -> Placed:
        partitions, data = self._together()
        size = sum(map(len, data))
        count = sum(len(rows) for rows in partitions.values())
        in_table = count > TABLE_EXTENTS_MIN and count > 2 * len(partitions)
        names, stored = list(self._sources.names), b""
        # Tasks encrypted their objects with these data keys; the master key wraps them here.
        keys: dict[str, ObjectKey | None] = {
            name: rewrap_key(self._ring, key) for name, key in self._sources.keys.items()
        }
        staged: tuple[str, ...] = ()
        if size and inline and not in_table:
            names[IN_DATA] = ""
            stored, keys[""] = self._sealed(data, size)
        elif size:
            names[IN_DATA] = name = new_staged_name(self._log_id, max(head, 0), self._label)
            keys[name] = self._put(name, data, size)
            staged = (name,)
        if in_table:
            table = new_staged_name(self._log_id, max(head, 0), _TABLE_LABEL)
            extents = self._by_table(table, partitions, names, keys)
            staged = (*staged, table)
        else:
            extents = tuple(_extents(partitions, names))
        used = {extent.object for _, extent in extents}
        used_keys = {name: key for name, key in keys.items() if key is not None and name in used}
        return Placed(extents=extents, data=stored, keys=used_keys, staged=staged)

    def _together(self) -> tuple[dict[TopicPartition, Pieces], list[Buffer]]:
        """Concatenate chunks in memory by partition; adjacent chunks become a single row."""
        data: list[Buffer] = []
        at = 0
        by_partition: dict[TopicPartition, Pieces] = {}
        for key, rows in self._rows.items():
            merged = []
            runs = groupby(rows, key=lambda row: int(row["object"]) == IN_DATA)
            for in_memory, run in runs if (rows["object"] == IN_DATA).any() else ():
                adjacent = list(run)
                if not in_memory:
                    merged += adjacent
                    continue
                whole, count = self._sources.joined(adjacent)
                latest = max(int(row["max_timestamp"]) for row in adjacent)
                row = IN_DATA, at, len(whole), count, latest, crc32c.crc32c(whole)
                merged.append(np.array(row, PIECE_DTYPE)[()])
                data.append(whole)
                at += len(whole)
            by_partition[key] = np.array(merged, PIECE_DTYPE) if merged else rows
        return by_partition, data

    def _sealed(self, data: Sequence[Buffer], size: int) -> tuple[bytes, ObjectKey | None]:
        if self._ring is None:
            return b"".join(data), None
        data_key, key = new_object_key(self._ring, size)
        return b"".join(data_key.seal(data, size)), key

    def _put(self, name: str, data: Sequence[Buffer], size: int) -> ObjectKey | None:
        if self._ring is None:
            self._store.put_stream(name, data, size)
            return None
        data_key, key = new_object_key(self._ring, size)
        self._store.put_stream(name, data_key.seal(data, size), data_key.stored_size(size))
        return key

    def _by_table(
        self,
        name: str,
        partitions: Mapping[TopicPartition, Pieces],
        names: Sequence[str],
        keys: Mapping[str, ObjectKey | None],
    ) -> PlacedExtents:
        many = {key: rows for key, rows in partitions.items() if len(rows) > 1}
        sealed = {each: key for each, key in keys.items() if key is not None and each}
        raw, blocks = extent_tables.encode(TableHead(names, sealed), many.values())
        self._store.put_stream(name, [raw], len(raw))
        at = dict(zip(many, blocks, strict=True))
        extents: list[tuple[TopicPartition, Extent]] = []
        for key, rows in partitions.items():
            if key not in at:
                extents += _extents({key: rows}, names)
                continue
            whole = Extent(
                0, int(rows["count"].sum()), name, at[key].start, int(rows["size"].sum()),
                int(rows["max_timestamp"].max()), 0, -1, pieces=len(rows), crc=at[key].crc,
            )  # fmt: skip
            extents.append((key, whole))
        return tuple(extents)


def _extents(
    partitions: Mapping[TopicPartition, Pieces], names: Sequence[str]
) -> Iterator[tuple[TopicPartition, Extent]]:
    for key, rows in partitions.items():
        for number, start, size, count, latest, crc in rows.tolist():
            yield key, Extent(0, count, names[number], start, size, latest, 0, -1, crc=crc)


class _Sources:
    """The objects and buffers in memory that contain a commit's chunks.

    Rows of chunks refer to the objects by number, and to buffers in memory by number 0.
    """

    def __init__(self) -> None:
        self.names: list[str] = [""]
        self.keys: dict[str, ObjectKey | TaskKey] = {}
        self.data_bytes = 0
        self._buffers: list[Buffer] = []  # chunks in memory; a row's `start` is an index here
        self._known: dict[int, tuple[StagedChunks, NDArray[np.uint32]]] = {}
        self._numbers: dict[str, int] = {"": IN_DATA}

    def rows(self, chunks: Iterable[Chunk]) -> dict[TopicPartition, Pieces]:
        """Return each partition's rows in commit order, which refer to objects by number."""
        by_partition: dict[TopicPartition, list[Pieces]] = {}
        for chunk in chunks:
            by_partition.setdefault(chunk.key, []).append(self._of(chunk))
        return {
            key: tables[0] if len(tables) == 1 else np.concatenate(tables)
            for key, tables in by_partition.items()
        }

    def _of(self, chunk: Chunk) -> Pieces:
        if isinstance(chunk.pieces, StagedChunks):
            return self._of_tasks(chunk.pieces)
        if chunk.data is not None:
            place, size, crc = (IN_DATA, self._held(chunk.data)), len(chunk.data), -1
        else:
            assert chunk.path is not None
            if chunk.wrapped_key is not None:
                self.keys[chunk.path] = from_text(chunk.wrapped_key, None)
            place, size = (self._number(chunk.path), chunk.position), chunk.size_bytes
            crc = chunk.crc
        return np.array([(*place, size, chunk.records, chunk.max_timestamp, crc)], PIECE_DTYPE)

    def _of_tasks(self, staged: StagedChunks) -> Pieces:
        table, given = staged.table, staged.table.rows
        known = self._known.get(id(table.places))
        if known is None:
            numbers = np.array([self._number(place.path) for place in table.places], np.uint32)
            known = self._known[id(table.places)] = staged, numbers
            self.keys |= staged.keys
        rows = np.empty(len(given), PIECE_DTYPE)
        rows["start"], rows["size"], rows["count"] = (
            given["position"], given["size"], given["records"],
        )  # fmt: skip
        rows["max_timestamp"], rows["crc"] = given["max_timestamp"], given["crc"]
        if not table.data:
            rows["object"] = known[1][given["place"]]
            return rows
        held, data = given["place"] == IN_MEMORY, memoryview(table.data)
        rows["object"][held] = IN_DATA
        rows["object"][~held] = known[1][given["place"][~held]]
        for at in np.flatnonzero(held).tolist():
            start, size = int(rows["start"][at]), int(rows["size"][at])
            rows["start"][at] = self._held(data[start : start + size])
        return rows

    def _held(self, data: Buffer) -> int:
        self._buffers.append(data)
        self.data_bytes += len(memoryview(data))
        return len(self._buffers) - 1

    def _number(self, name: str) -> int:
        if name not in self._numbers:
            self._numbers[name] = len(self.names)
            self.names.append(name)
        return self._numbers[name]

    def joined(self, rows: Sequence[np.void]) -> tuple[Buffer, int]:
        """Return the batches of rows in memory as a single buffer, and their number of records."""
        buffers = [self._buffers[int(row["start"])] for row in rows]
        counts = [int(row["count"]) for row in rows]
        if len(buffers) == 1:
            return buffers[0], counts[0]
        whole, at, base = bytearray().join(buffers), 0, 0
        for buffer, count in zip(buffers, counts, strict=True):
            end = at + len(memoryview(buffer))
            rebase(memoryview(whole)[at:end], base, 0)
            at, base = end, base + count
        return whole, base
