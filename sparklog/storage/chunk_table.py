"""`ChunkTable`: the columns in which tasks report many chunks to the driver.

A micro-batch of 2,000 tasks by 1,000 partitions has two million chunks. A row of the table takes
about 20 bytes in transit and 50 in the driver, where a `Chunk` object takes 400.

    length of the header (4)  header: JSON, zlib | columns of the rows, consecutively, zlib
    | bytes of the chunks that are in memory

The table is little-endian, and decoded without pickle.
"""

import itertools
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sparklog.storage.commits import Chunk

ROW_DTYPE: Final = np.dtype(
    [
        ("topic", "<u4"),  # index into `topics`
        ("partition", "<u4"),
        ("place", "<u4"),  # index into `places`; IN_MEMORY: the batches are in `data`
        ("position", "<u8"),  # of the first byte
        ("size", "<u8"),
        ("records", "<u8"),
        ("min_timestamp", "<i8"),
        ("max_timestamp", "<i8"),
        ("idempotent", "?"),
        ("crc", "<i8"),  # -1: not computed
    ]
)
IN_MEMORY: Final = 2**32 - 1
_LEVEL: Final = 1  # of zlib: a tenth larger than level 6, in a fifth of the time


@dataclass(frozen=True, slots=True)
class ChunkLocation:
    """The location of staged chunks: the fields of `Chunk` with the same names."""

    path: str
    synced_boot_id: str | None = None
    wrapped_key: str | None = None


@dataclass(frozen=True, slots=True)
class ChunkTable:
    """Chunks in their order, as columns.

    Attributes:
        topics: (name, topic id) of each topic, to which `rows` refer by index.
        places: The locations of chunks that are not in memory, to which `rows` refer by index.
        rows: A row of `ROW_DTYPE` per chunk.
        data: The batches of all chunks in memory, consecutively.
    """

    topics: Sequence[tuple[str, str]]
    places: Sequence[ChunkLocation]
    rows: NDArray[np.void]
    data: bytes | memoryview

    def __len__(self) -> int:
        return len(self.rows)

    @classmethod
    def of(cls, chunks: Iterable[Chunk]) -> "ChunkTable":
        topics: dict[tuple[str, str], int] = {}
        places: dict[ChunkLocation, int] = {}
        rows: list[tuple[Any, ...]] = []
        data: list[bytes | bytearray | memoryview] = []
        at = 0
        for chunk in chunks:
            topic = topics.setdefault((chunk.topic, chunk.topic_id), len(topics))
            place, position = IN_MEMORY, at
            if chunk.data is not None:
                data.append(chunk.data)
                at += len(chunk.data)
            else:
                assert chunk.path is not None
                where = ChunkLocation(chunk.path, chunk.synced_boot_id, chunk.wrapped_key)
                place, position = places.setdefault(where, len(places)), chunk.position
            rows.append(
                (
                    topic, chunk.partition, place, position, chunk.size_bytes, chunk.records,
                    chunk.min_timestamp, chunk.max_timestamp, chunk.idempotent, chunk.crc,
                )
            )  # fmt: skip
        return cls(list(topics), list(places), np.array(rows, ROW_DTYPE), b"".join(data))

    def chunks(self) -> Iterator[Chunk]:
        """Yield the chunks; the data of chunks in memory are views of `data`."""
        data = memoryview(self.data)
        for row in self.rows.tolist():
            topic, partition, number, position, size, records, low, high, idempotent, crc = row
            name, topic_id = self.topics[topic]
            place = None if number == IN_MEMORY else self.places[number]
            yield Chunk(
                topic=name,
                topic_id=topic_id,
                partition=partition,
                data=data[position : position + size] if place is None else None,
                path=None if place is None else place.path,
                position=0 if place is None else position,
                synced_boot_id=None if place is None else place.synced_boot_id,
                wrapped_key=None if place is None else place.wrapped_key,
                size_bytes=size,
                records=records,
                min_timestamp=low,
                max_timestamp=high,
                idempotent=idempotent,
                crc=crc,
            )

    # A bucket writes the whole table as one object, so positions in `data` are those in the object.
    def placed(self, location: ChunkLocation) -> "ChunkTable":
        """Return the table after the chunks were moved from memory to a single location.

        In `location` the chunks are stored consecutively.
        """
        rows = self.rows.copy()
        assert (rows["place"] == IN_MEMORY).all()
        rows["place"] = 0
        return ChunkTable(self.topics, [location], rows, b"")

    @classmethod
    def joined(cls, tables: Sequence["ChunkTable"]) -> "ChunkTable":
        topics: dict[tuple[str, str], int] = {}
        places: list[ChunkLocation] = []
        numbers: list[int] = []  # of all tables' topics
        firsts, position = [], 0  # of each table: its first topic, place and byte
        for table in tables:
            firsts.append((len(numbers), len(places), position))
            numbers += [topics.setdefault(topic, len(topics)) for topic in table.topics]
            places += table.places
            position += len(table.data)
        rows = np.concatenate([np.empty(0, ROW_DTYPE), *(table.rows for table in tables)])
        if len(rows):
            lengths = [len(table) for table in tables]
            topic, place, at = np.repeat(np.array(firsts, np.uint64), lengths, axis=0).T
            rows["topic"] = np.array(numbers, np.uint32)[rows["topic"] + topic]
            in_memory = rows["place"] == IN_MEMORY
            rows["place"] += np.where(in_memory, 0, place).astype(np.uint32)
            rows["position"] += np.where(in_memory, at, 0).astype(np.uint64)
        return cls(list(topics), places, rows, b"".join(table.data for table in tables))

    def by_partition(self) -> Iterator["ChunkTable"]:
        """Yield a table for each partition with its chunks, which share the other fields."""
        rows = self.rows
        partitions = rows["topic"].astype(np.uint64) << np.uint64(32) | rows["partition"]
        # Stable, because the chunks of a partition must stay in the order of the tasks.
        order = np.argsort(partitions, kind="stable")
        rows, partitions = rows[order], partitions[order]
        starts = [0, *(np.flatnonzero(np.diff(partitions)) + 1).tolist(), len(rows)]
        for first, end in itertools.pairwise(starts):
            if first < end:
                yield ChunkTable(self.topics, self.places, rows[first:end], self.data)

    def pack(self) -> bytes:
        """Return the table's serialized form."""
        places = [[p.path, p.synced_boot_id, p.wrapped_key] for p in self.places]
        fields = {"topics": self.topics, "places": places, "rows": len(self.rows)}
        columns = b"".join(
            np.ascontiguousarray(self.rows[name]).tobytes() for name in ROW_DTYPE.names or ()
        )
        packed = zlib.compress(columns, _LEVEL)
        header = zlib.compress(json.dumps(fields | {"columns": len(packed)}).encode(), _LEVEL)
        return b"".join((len(header).to_bytes(4, "little"), header, packed, self.data))

    @classmethod
    def unpack(cls, raw: bytes | bytearray | memoryview) -> "ChunkTable":
        """Return the table of a serialized form; `data` is a view of `raw`."""
        view = memoryview(raw)
        end = 4 + int.from_bytes(view[:4], "little")
        fields = json.loads(zlib.decompress(view[4:end]))
        columns, at = zlib.decompress(view[end : end + fields["columns"]]), 0
        rows = np.empty(fields["rows"], ROW_DTYPE)
        for name in ROW_DTYPE.names or ():
            kind = ROW_DTYPE[name]
            if name == "crc" and at == len(columns):  # an older version reports none
                rows[name] = -1
                break
            rows[name] = np.frombuffer(columns, kind, len(rows), at)
            at += kind.itemsize * len(rows)
        topics = [(name, topic_id) for name, topic_id in fields["topics"]]
        places = [ChunkLocation(*place) for place in fields["places"]]
        return cls(topics, places, rows, view[end + fields["columns"] :])
