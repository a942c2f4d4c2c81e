"""Staged chunks for tests: topics, rows, and what lies at extents read back."""

from collections.abc import Sequence
from typing import Any

import crc32c
import pyarrow as pa

from sparklog.common import TopicPartition
from sparklog.config import TopicConfig
from sparklog.diskless import extent_tables
from sparklog.diskless.entries import ObjectKey
from sparklog.diskless.extents import Extent
from sparklog.diskless.placement import Placed, PlacedExtents, settled
from sparklog.format.decoder import Decoder
from sparklog.format.scan import rebase, scan
from sparklog.storage.view import TopicInfo
from sparklog.tiered.encryption.envelope import open_data_key
from sparklog.tiered.keyring import Keyring
from sparklog.tiered.object_store.store import Store

LOG_ID = "L" * 22
URL = "memory://home"


def topic(name: str = "t", partitions: int = 3, **config: object) -> TopicInfo:
    """A topic that is there."""
    keys = {key.replace("_", "."): str(value) for key, value in config.items()}
    dirs = {p: f"{URL}/{name}-{p}" for p in range(partitions)}
    return TopicInfo(name, f"id-{name}", partitions, TopicConfig.parse(keys), dirs)


def rows(values: Sequence[str], partitions: Sequence[int] | None = None) -> pa.RecordBatch:
    """Records with these values, in these partitions."""
    columns: dict[str, Any] = {"value": pa.array([v.encode() for v in values], pa.binary())}
    columns["timestamp"] = pa.array(range(1000, 1000 + len(values)), pa.timestamp("ms", "UTC"))
    if partitions is not None:
        columns["partition"] = pa.array(partitions, pa.int32())
    return pa.RecordBatch.from_pydict(columns)


class Reading:
    """Reads what lies at extents, as a reader of the log would."""

    def __init__(
        self, store: Store, placed: Placed, ring: Keyring | None = None, *, epoch: int = 3
    ) -> None:
        self.store, self.data, self.ring = store, placed.data, ring
        self.keys = dict(placed.keys)
        ends = {key: 100 * (key.partition + 1) for key, _ in placed.extents}
        self.extents: PlacedExtents = settled(placed.extents, ends, epoch=epoch)

    def values(self, topic: str = "t") -> dict[int, list[tuple[int, str]]]:
        """{partition: [(offset, value), ...]}, all CRCs and the order of offsets checked."""
        found: dict[int, list[tuple[int, str]]] = {}
        for key, extent in self.extents:
            if key.topic == topic:
                found.setdefault(key.partition, []).extend(self._of(key, extent))
        return found

    def _of(self, key: TopicPartition, extent: Extent) -> list[tuple[int, str]]:
        if extent.pieces:
            head = extent_tables.read_head(
                lambda start, end: self.store.get(extent.object, start, end), path=extent.object
            )
            end = extent.start + extent_tables.block_size(extent)
            block = self.store.get(extent.object, extent.start, end)
            self.keys |= head.keys
            pieces = extent_tables.pieces_of(extent, head, block, path=extent.object)
            return [row for piece in pieces for row in self._of(key, piece)]
        raw = bytearray(self._bytes(extent))
        assert len(raw) == extent.size
        assert extent.crc in (-1, crc32c.crc32c(raw))
        assert rebase(raw, extent.base, extent.epoch) == extent.end
        result = scan(raw, path="p")
        assert result.error is None
        assert (result.table["leader_epoch"] == extent.epoch).all()
        assert result.table["max_timestamp"].max() == extent.max_timestamp
        decoder = Decoder()
        assert decoder.add_many(raw, result.table, path="p") == len(result.table)
        batch = decoder.finish()
        offsets = batch["offset"].to_pylist()
        assert offsets == list(range(extent.base, extent.end))
        return list(zip(offsets, [v.decode() for v in batch["value"].to_pylist()], strict=True))

    def _bytes(self, extent: Extent) -> bytes:
        key: ObjectKey | None = self.keys.get(extent.object)
        start, end = extent.start, extent.start + extent.size
        if key is not None:
            assert self.ring is not None
            opened = open_data_key(self.ring, key.id, key.wrapped)
            first, stored_end = opened.stored_range(start, end, key.size)
            stored = self._stored(extent.object, first, stored_end)
            return opened.open_range(stored, start, end, key.size, path=extent.object)
        return self._stored(extent.object, start, end)

    def _stored(self, name: str, start: int, end: int) -> bytes:
        return self.store.get(name, start, end) if name else self.data[start:end]
