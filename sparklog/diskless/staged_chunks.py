"""Merges the reports of several tasks into a `Chunk` per partition, with a row per staged chunk.

Two million chunks of 2,000 tasks in 1,000 partitions become 1,000 chunks.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sparklog.diskless.entries import ObjectKey
from sparklog.diskless.object_keys import TaskKey, from_text
from sparklog.storage.chunk_table import ChunkTable
from sparklog.storage.commits import Chunk


@dataclass(frozen=True, slots=True, eq=False)
class StagedChunks:
    """The staged chunks of a partition: `Chunk.pieces`. `keys`: {object: its data key}.

    Chunks that were merged together share `keys` and the fields of `table`, except the rows.
    """

    table: ChunkTable
    keys: Mapping[str, ObjectKey | TaskKey]


def objects_of(chunks: Iterable[Chunk]) -> set[str]:
    """Return the staged objects that contain these chunks."""
    objects: set[str] = set()
    seen: set[int] = set()
    for chunk in chunks:
        if chunk.path is not None:
            objects.add(chunk.path)
        elif isinstance(chunk.pieces, StagedChunks):
            places = chunk.pieces.table.places
            if id(places) not in seen:
                seen.add(id(places))  # shared by all chunks that were merged together
                objects.update(place.path for place in places)
    return objects


def gathered(tables: Sequence[ChunkTable], transport: bytes | None) -> list[Chunk]:
    """Return the chunks of a commit from the reports of its tasks, in the order of the tasks.

    Args: transport: see `object_keys`. Memory: 150 bytes per reported chunk, temporarily.
    """
    whole = ChunkTable.joined([table for table in tables if len(table)])
    keys = {
        place.path: from_text(place.wrapped_key, transport)
        for place in whole.places
        if place.wrapped_key is not None
    }
    merged = []
    for table in whole.by_partition():
        rows = table.rows
        name, topic_id = table.topics[int(rows["topic"][0])]
        merged.append(
            Chunk(
                topic=name,
                topic_id=topic_id,
                partition=int(rows["partition"][0]),
                size_bytes=int(rows["size"].sum()),
                records=int(rows["records"].sum()),
                min_timestamp=int(rows["min_timestamp"].min()),
                max_timestamp=int(rows["max_timestamp"].max()),
                pieces=StagedChunks(table, keys),
            )
        )
    return merged
