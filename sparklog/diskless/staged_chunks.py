"""Objects that tasks staged: merges their reports, and deletes what failed attempts left.

The reports of several tasks become a `Chunk` per partition, with a row per staged chunk: two
million chunks of 2,000 tasks in 1,000 partitions become 1,000 chunks.

Spark kills attempts (speculation, lost executors, cancelled jobs), and their objects remain until
their micro-batch is committed. Their names contain the label of the micro-batch. After its commit,
no other commit of the micro-batch is accepted, except after a reset of the writer. A reset is a
later entry than the commit, so objects that are staged after it have a higher number in their
names.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sparklog.diskless.entries import ObjectKey
from sparklog.diskless.names import parse_staged, staged_prefix
from sparklog.diskless.object_keys import TaskKey, from_text
from sparklog.diskless.state import DisklessState
from sparklog.storage.chunk_table import ChunkTable
from sparklog.storage.commits import Chunk
from sparklog.tiered.object_store.store import Store

_SLASH: Final = "/"


@dataclass(frozen=True, slots=True, eq=False)
class StagedChunks:
    """The locations of a partition's staged chunks, which one `Chunk` combines (`Chunk.pieces`).

    Chunks that were combined together share `keys` and the fields of `table`, except the rows.

    Attributes:
        table: A row per staged chunk.
        keys: {object: data key} of encrypted objects.
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
    """Combine the reports of a commit's tasks, in their order, into a chunk per partition.

    Memory: 150 bytes per reported chunk, temporarily.

    Args:
        tables: The reports of the tasks.
        transport: The transport key of the job (see `object_keys`), if tasks encrypt objects.
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


def delete_retried(store: Store, log_id: str, label: str, kept: Collection[str]) -> int:
    """Delete objects that other attempts at a committed micro-batch staged under the same plan.

    Cost: a listing of the micro-batch's objects, and a deletion.

    Args:
        label: The label of the micro-batch in the names of its objects.
        kept: All objects that the commit refers to.

    Returns:
        The number of deleted objects.
    """
    numbers = {name.rpartition(_SLASH)[0] for name in kept}
    listed = [stored.name for each in numbers for stored in store.list(f"{each}/{label}-")]
    deletable = [name for name in listed if name not in kept]
    store.delete(deletable)
    return len(deletable)


def delete_of_earlier_runs(
    store: Store, state: DisklessState, label: str, kept: Collection[str]
) -> int:
    """Delete objects that earlier runs of a query staged for the micro-batch just committed.

    A commit before a reset of the writer may have the same label, so objects of the log are not
    deleted. No object is deleted if these can't be determined without reading extent tables.
    Cost: a listing of all staged objects, and a deletion.

    Args:
        state: The state after the commit.
        label, kept: As in `delete_retried`.

    Returns:
        The number of deleted objects.
    """
    numbers = [parse_staged(state.log_id, name) for name in kept]
    newest = max((number for number in numbers if number is not None), default=-1)
    extents = (extent for of_partition in state.kept_extents() for extent in of_partition)
    if newest < 0 or any(extent.pieces and extent.object not in kept for extent in extents):
        return 0
    prefix, live, deletable = staged_prefix(state.log_id), state.live_objects(), list[str]()
    # The service deletes the objects below the stage floor.
    for stored in store.list(prefix, f"{prefix}{max(0, state.floor):020d}"):
        number = parse_staged(state.log_id, stored.name)
        is_labelled = stored.name.rpartition(_SLASH)[2].startswith(f"{label}-")
        if is_labelled and number is not None and number <= newest:
            deletable += [] if stored.name in live or stored.name in kept else [stored.name]
    store.delete(deletable)
    return len(deletable)
