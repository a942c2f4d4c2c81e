"""Merges the reports of several tasks into a `Chunk` per partition, with a row per staged chunk.

Two million chunks of 2,000 tasks in 1,000 partitions become 1,000 chunks.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sparklog.diskless.entries import ObjectKey
from sparklog.diskless.extent_tables import Pieces
from sparklog.diskless.extents import PIECE_DTYPE
from sparklog.diskless.object_keys import TaskKey, from_text
from sparklog.storage.chunk_table import IN_MEMORY, ChunkTable
from sparklog.storage.commits import Chunk

IN_DATA: Final = 0
"""Object number of a chunk in memory, at `start` in `data`."""


@dataclass(frozen=True, slots=True, eq=False)
class StagedChunks:
    """The staged chunks of a partition. `rows`: PIECE_DTYPE; their `object` is an index of `names`.

    Chunks that were merged together share `names`, `keys` and `data`.
    """

    names: Sequence[str]
    rows: Pieces
    data: memoryview = field(default=memoryview(b""), repr=False)
    keys: Mapping[str, ObjectKey | TaskKey] = field(default_factory=dict, repr=False)


def read_chunks(chunk: Chunk) -> StagedChunks:
    """Return the staged chunks of a chunk that is not in memory."""
    if isinstance(chunk.pieces, StagedChunks):
        return chunk.pieces
    assert chunk.path is not None
    row = 1, chunk.position, chunk.size_bytes, chunk.records, chunk.max_timestamp, chunk.crc
    keys = {}
    if chunk.wrapped_key is not None:
        keys[chunk.path] = from_text(chunk.wrapped_key, None)
    return StagedChunks(["", chunk.path], np.array([row], PIECE_DTYPE), keys=keys)


def objects_of(chunks: Iterable[Chunk]) -> set[str]:
    """Return the staged objects that contain these chunks."""
    objects: set[str] = set()
    seen: set[int] = set()
    for chunk in chunks:
        if chunk.path is not None:
            objects.add(chunk.path)
        elif isinstance(chunk.pieces, StagedChunks) and id(chunk.pieces.names) not in seen:
            seen.add(id(chunk.pieces.names))  # shared by all chunks that were merged together
            objects.update(name for name in chunk.pieces.names if name)
    return objects


def gathered(tables: Sequence[ChunkTable], transport: bytes | None) -> list[Chunk]:
    """Return the chunks of a commit from the reports of its tasks, in the order of the tasks.

    Args: transport: see `object_keys`. Memory: 100 bytes per reported chunk, temporarily.
    """
    tables = [table for table in tables if len(table)]
    if not tables:
        return []
    names, keys, data = [""], {}, bytearray()
    topics: dict[tuple[str, str], int] = {}
    parts, partitions = [], []
    for table in tables:
        first = len(names)
        for place in table.places:
            names.append(place.path)
            if place.wrapped_key is not None:
                keys[place.path] = from_text(place.wrapped_key, transport)
        numbers = np.array([topics.setdefault(t, len(topics)) for t in table.topics], np.uint64)
        rows, some = table.rows, np.empty(len(table), PIECE_DTYPE)
        held = rows["place"] == IN_MEMORY
        some["object"] = np.where(held, IN_DATA, rows["place"] + np.uint32(first))
        some["start"] = rows["position"] + np.where(held, np.uint64(len(data)), np.uint64(0))
        some["size"], some["count"] = rows["size"], rows["records"]
        some["max_timestamp"], some["crc"] = rows["max_timestamp"], rows["crc"]
        data += table.data
        parts.append(some)
        partitions.append(numbers[rows["topic"]] << np.uint64(32) | rows["partition"])
    earliest = np.concatenate([table.rows["min_timestamp"] for table in tables])
    return _by_partition(
        list(topics), np.concatenate(partitions), np.concatenate(parts), earliest,
        names, memoryview(data).toreadonly(), keys,
    )  # fmt: skip


def _by_partition(
    topics: Sequence[tuple[str, str]],
    partitions: NDArray[np.uint64],
    pieces: Pieces,
    earliest: NDArray[np.int64],
    names: Sequence[str],
    data: memoryview,
    keys: Mapping[str, ObjectKey | TaskKey],
) -> list[Chunk]:
    order = np.argsort(partitions, kind="stable")
    partitions, pieces, earliest = partitions[order], pieces[order], earliest[order]
    starts = np.flatnonzero(np.diff(partitions, prepend=partitions[0] + np.uint64(1)))
    ends = [*starts[1:].tolist(), len(pieces)]
    merged = []
    for first, end in zip(starts.tolist(), ends, strict=True):
        number, rows = int(partitions[first]), pieces[first:end]
        name, topic_id = topics[number >> 32]
        merged.append(
            Chunk(
                topic=name,
                topic_id=topic_id,
                partition=number & 0xFFFFFFFF,
                size_bytes=int(rows["size"].sum()),
                records=int(rows["count"].sum()),
                min_timestamp=int(earliest[first:end].min()),
                max_timestamp=int(rows["max_timestamp"].max()),
                pieces=StagedChunks(names, rows, data, keys),
            )
        )
    return merged
