"""The objects that a fork copies from the old log, and the names of their copies.

    a closed segment      same segment id, below the prefix of the new topic id
    a staged object       below the new log's `staged-`, as if staged at the new log's entry 0
    data in an entry      packed with others into staged objects; each encrypted part into its own
    an extent table       written again, because it contains other names
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from sparklog.common import TopicPartition
from sparklog.diskless import extent_tables
from sparklog.diskless.entries import ObjectKey
from sparklog.diskless.extent_objects import get_range
from sparklog.diskless.extent_tables import TableHead
from sparklog.diskless.extents import Extent, Extents
from sparklog.diskless.import_objects import NewObject
from sparklog.diskless.ledger import EntryReader
from sparklog.diskless.names import entry_name, new_staged_name, staged_prefix
from sparklog.diskless.state import DisklessState
from sparklog.errors import DataCorruptionError
from sparklog.tiered.encryption.envelope import stored_size
from sparklog.tiered.layout import manifest as manifests
from sparklog.tiered.layout.manifest import MANIFEST_BYTES_MAX, manifest_object
from sparklog.tiered.layout.object_names import Directory
from sparklog.tiered.object_store.store import Store
from sparklog.tiered.remote_segment import RemoteSegment, SegmentState

_PACK_BYTES: Final = 32 << 20
_Range = tuple[str, int, int]
"""(object, first byte, end byte)"""


class ForkedObjects:
    """The objects of a fork: new names, and functions that make the copies.

    Call `copied` for all partitions first, because it adds to the objects, manifests and keys.
    """

    def __init__(
        self,
        entries: EntryReader,
        now: DisklessState,
        target: Store,
        log_id: str,
        ids: Mapping[str, str],
    ) -> None:
        """`ids`: {old topic id: new topic id}."""
        self._store, self._now, self._target = entries.store, now, target
        self._log_id, self._ids = log_id, ids
        self._inline = entry_name(entries.log_id, 0)[:-20]
        self._staged = staged_prefix(entries.log_id)
        self._new: dict[str, NewObject] = {}  # by old name
        self._moved: dict[str, tuple[str, int]] = {}  # entry: new object, offset to add to a start
        self._pack: list[_Range] = []
        self._pack_name, self._pack_size = "", 0
        self._packs: list[NewObject] = []
        self.manifests: list[NewObject] = []
        self.keys: dict[str, ObjectKey] = {}

    def objects(self) -> list[NewObject]:
        """Return the objects to write for all extents that were passed to `copied`."""
        self._close_pack()
        return [*self._new.values(), *self._packs]

    def copied(self, key: TopicPartition, extents: Iterable[Extent]) -> Extents:
        """Return the fork's extents for extents of the old log, and note the objects to copy."""
        return tuple(self._copied(key, extent)._replace(born=-1) for extent in extents)

    def _copied(self, key: TopicPartition, extent: Extent) -> Extent:
        if extent.segment:
            return self._segment(key, extent)
        if extent.pieces:
            return self._table(extent)
        name, more = self._object(extent.object)
        return extent._replace(object=name, start=extent.start + more)

    def _object(self, name: str) -> tuple[str, int]:
        """Return the name of an object's copy, and the number to add to positions in the object.

        The object may be a ledger entry with inline data.
        """
        if name.startswith(self._inline):
            if name not in self._moved:
                self._moved[name] = self._entry(name)
            return self._moved[name]
        if name not in self._new:
            rest = name.removeprefix(self._staged).partition("/")[2]
            new = f"{staged_prefix(self._log_id)}{0:020d}/{rest}"
            self._take(name, new, -1)
        return self._new[name].name, 0

    def _take(self, name: str, new: str, size: int) -> None:
        self._new[name] = NewObject(new, size, partial(self._target.copy, self._store, name, new))
        if name in self._now.keys:
            self.keys[new] = self._now.keys[name]

    # -- closed segments

    def _segment(self, key: TopicPartition, extent: Extent) -> Extent:
        name, topic_id = extent.object, self._ids[key.topic]
        prefix = Directory(key.topic, key.partition, topic_id).prefix
        new = prefix + name.rpartition("/")[2]
        if name not in self._new:
            sealed = self._now.keys.get(name)
            size = extent.size
            if sealed is not None:
                size = stored_size(sealed.size, sealed.wrapped.chunk_bytes)
            self._take(name, new, size)
            old = RemoteSegment(
                topic=key.topic, topic_id=name.partition("/")[0][-22:], partition=key.partition,
                id=extent.segment, base=extent.base, end=extent.end, size=extent.size,
                max_timestamp=extent.max_timestamp, epochs=(), state=SegmentState.COPY_FINISHED,
                time_ms=0,
            )  # fmt: skip
            new_manifest = manifest_object(replace(old, topic_id=topic_id))
            write = partial(self._put_manifest, manifest_object(old), new_manifest, topic_id)
            self.manifests.append(NewObject(new_manifest, -1, write))
        return extent._replace(object=new)

    def _put_manifest(self, name: str, new: str, topic_id: str) -> None:
        """Copy a manifest with the new topic id.

        The service writes manifests that don't exist yet.
        """
        try:
            raw = self._store.get(name, limit=MANIFEST_BYTES_MAX)
        except FileNotFoundError:
            return
        manifest, body = manifests.parse(raw, path=f"{self._store.url}/{name}")
        segment = replace(manifest.segment, topic_id=topic_id)
        self._target.put(new, manifests.to_bytes(replace(manifest, segment=segment), body))

    # -- inline data of entries

    def _entry(self, name: str) -> tuple[str, int]:
        sealed = self._now.keys.get(name)
        if sealed is not None:
            size = stored_size(sealed.size, sealed.wrapped.chunk_bytes)
            new = new_staged_name(self._log_id, 0, "inline")
            self._add(new, [(name, sealed.at, sealed.at + size)])
            self.keys[new] = sealed._replace(at=0)
            return new, 0
        # A merge may have left only a part of the inline data in use. The rest is not copied.
        lying = [
            extent
            for extents in self._now.extents.values()
            for extent in extents
            if extent.object == name
        ]
        first, end = (
            min(extent.start for extent in lying),
            max(extent.start + extent.size for extent in lying),
        )
        if self._pack_size + end - first > _PACK_BYTES:
            self._close_pack()
        if not self._pack:
            self._pack_name = new_staged_name(self._log_id, 0, "inline")
        at = self._pack_size
        self._pack.append((name, first, end))
        self._pack_size += end - first
        return self._pack_name, at - first

    def _close_pack(self) -> None:
        if self._pack:
            self._add(self._pack_name, self._pack)
            self._pack, self._pack_size = [], 0

    def _add(self, new: str, ranges: list[_Range]) -> None:
        size = sum(end - first for _, first, end in ranges)
        self._packs.append(NewObject(new, size, partial(self._put_ranges, new, ranges)))

    def _put_ranges(self, new: str, ranges: list[_Range]) -> None:
        parts = []
        for name, first, end in ranges:
            data = get_range(self._store, name, first, end)
            if len(data) != end - first:
                raise DataCorruptionError(
                    "the object ends before the data that the fork needs. A merge may have "
                    "replaced the data, so fork again; if that does not help, restore the object "
                    "from a copy of the bucket",
                    path=f"{self._store.url}/{name}", position=first + len(data),
                )  # fmt: skip
            parts.append(data)
        self._target.put(new, b"".join(parts))

    # -- tables

    def _table(self, extent: Extent) -> Extent:
        """Write a new table with the rows of the extent's partition."""
        path = f"{self._store.url}/{extent.object}"

        def get(start: int, end: int) -> bytes:
            return self._store.get(extent.object, start, end)

        head = extent_tables.read_head(get, path=path)
        block = get(extent.start, extent.start + extent_tables.block_size(extent))
        extent_tables.pieces_of(extent, head, block, path=path)  # verifies the block
        rows = extent_tables.rows_of(extent, block, path=path)
        # Only the objects of this partition's rows: other partitions get tables of their own.
        used, numbers = np.unique(rows["object"], return_inverse=True)
        rows["object"] = numbers
        old = [head.names[number] for number in used.tolist()]
        names = [self._object(name)[0] for name in old]
        keys = {new: head.keys[name] for new, name in zip(names, old, strict=True)
                if name in head.keys}  # fmt: skip
        raw, ((start, crc),) = extent_tables.encode(TableHead(names, keys), [rows])
        new = new_staged_name(self._log_id, 0, "table")
        self._packs.append(NewObject(new, len(raw), partial(self._target.put, new, raw)))
        return extent._replace(object=new, start=start, crc=crc)
