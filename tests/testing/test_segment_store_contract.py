"""The contract of putting and deleting closed segments, on the tier's store."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from sparklog.clock import ManualClock
from sparklog.common import TopicPartition
from sparklog.storage.segments import PartitionSegments
from sparklog.testing.faultstore import FaultStore
from sparklog.testing.segment_store_contract import SegmentStoreContract, SegmentStoreHome
from sparklog.tiered.archive.listing import BucketListing
from sparklog.tiered.archive.view import ArchiveSegments
from sparklog.tiered.copying.remote_storage_manager import RemoteStorageManager
from sparklog.tiered.reading.block_cache import BlockCache
from sparklog.tiered.reading.remote_objects import RemoteObjects
from sparklog.tiered.remote_segment import RemoteSegment, new_segment_id
from tests.tiered.logs import Put, filled, puts_of

PART_BYTES = 200  # so that a log is uploaded in parts


class Tier:
    """A bucket in memory; see `SegmentStoreHome`."""

    def __init__(self, puts: Sequence[Put], clock: ManualClock) -> None:
        self.puts, self._clock = puts, clock
        self._bucket = FaultStore(clock=clock, part_bytes=PART_BYTES)

    def _store_of(self, store: FaultStore) -> RemoteStorageManager:
        return RemoteStorageManager(store, self._clock, threads=2)

    def store(self) -> RemoteStorageManager:
        return self._store_of(self._bucket.reopen())

    def crashing(self, effect: int) -> RemoteStorageManager:
        store = self._bucket.reopen()
        store.crash_at(effect, after=False)
        return self._store_of(store)

    def down(self) -> RemoteStorageManager:
        store = self._bucket.reopen()
        store.refuse()
        return self._store_of(store)

    def reader(self) -> PartitionSegments:
        store = self._bucket.reopen()
        objects = RemoteObjects(lambda: store, BlockCache(1 << 20))
        return ArchiveSegments(
            store.url, TopicPartition("t", 0), objects, BucketListing(objects),
            gaps=False, topic_id=None,
        )  # fmt: skip

    def successor(self, put: Put, old: RemoteSegment) -> Put:
        segment = dataclasses.replace(put.segment, id=new_segment_id())
        return dataclasses.replace(put, segment=segment, replaces=(old,))

    def objects(self) -> dict[str, bytes]:
        return {name: data for name, (data, _) in self._bucket.bucket.objects.items()}


class TestTier(SegmentStoreContract[RemoteSegment]):
    @pytest.fixture
    def home(self, tmp_path: Path, clock: ManualClock) -> Iterator[SegmentStoreHome[RemoteSegment]]:
        with filled(tmp_path / "log", clock) as log:
            yield Tier(puts_of(log, clock), clock)
