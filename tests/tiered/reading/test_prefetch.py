"""A sequential reader is fetched ahead, over a segment's end as well, and nothing comes twice."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog.log.log import Log
from sparklog.tiered.layout.manifest import log_object, manifest_object
from sparklog.tiered.reading.range_fetcher import BLOCK_BYTES, RUN_BYTES
from sparklog.tiered.remote_segment import RemoteSegment
from tests.tiered.buckets import DictStore, archive_log, copy_partition, objects, tiered_log
from tests.tiered.reading.test_tiered_segments import forget, note

SEGMENT_BYTES = 9 << 20  # three windows of a reader, the last a short one
BATCH_BYTES = 128 << 10


class Watched(DictStore):
    """Notes the range of each get, and tells who waits that a name was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.ranges: dict[str, list[tuple[int, int]]] = {}
        self._asked = threading.Condition()

    def get(self, name: str, start: int = 0, end: int | None = None, **given: int) -> bytes:
        data = super().get(name, start, end)
        with self._asked:
            self.ranges.setdefault(name, []).append((start, start + len(data)))
            self._asked.notify_all()
        return data

    def is_asked_for(self, name: str) -> bool:
        """Tell whether it is or will be, though nobody reads on meanwhile."""
        with self._asked:
            return self._asked.wait_for(lambda: name in self.ranges, timeout=240)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Watched, list[RemoteSegment]]:
    """Three remote segments and an active one; values that no codec makes smaller."""
    path, store, rng = tmp_path_factory.mktemp("prefetch") / "log", Watched(), random.Random(1)
    with sparklog.open(path, "rw") as log:
        config = {"segment.bytes": SEGMENT_BYTES, "remote.storage.enable": True}
        log.create_topic("t", config=config)
        for _ in range(3 * SEGMENT_BYTES // BATCH_BYTES):
            log.append("t", pa.table({"value": [rng.randbytes(BATCH_BYTES)]}), partition=0)
    copied = copy_partition(path / "t-0", store)
    assert len(copied) >= 2
    note(path, copied)
    forget(path / "t-0", [segment.base for segment in copied])
    return path, store, copied


@pytest.fixture(params=["a log dir", "a bucket alone"])
def log(
    request: pytest.FixtureRequest, made: tuple[Path, Watched, list[RemoteSegment]]
) -> Iterator[Log]:
    path, store, _ = made
    if request.param == "a log dir":
        opened = tiered_log(path, objects(store))
    else:
        opened = archive_log(store.url, objects(store))
    with opened:
        opened.topics()
        yield opened


def test_over_the_segments_end(log: Log, made: tuple[Path, Watched, list[RemoteSegment]]) -> None:
    """The next segment's first block is asked for before the one at hand is used up."""
    _, store, copied = made
    store.ranges.clear()
    looked, rows = set(), 0
    for batch in log.read("t", end={0: copied[-1].end}, columns=["offset"]):
        rows += batch.num_rows
        at = batch["offset"][-1].as_py() + 1
        for segment, following in itertools.pairwise(copied):
            if (segment.base + segment.end) // 2 < at < segment.end:  # and nobody reads on yet
                name = log_object(following)
                assert store.is_asked_for(name), f"{name} is not asked for at offset {at}"
                assert store.ranges[name][0][0] == 0
                looked.add(segment.id)
    assert rows == copied[-1].end
    assert looked == {segment.id for segment in copied[:-1]}
    for segment in copied:
        got = sorted(store.ranges.pop(log_object(segment)))
        assert got[0][0] == 0 and got[-1][1] == segment.size
        assert all(end == start for (_, end), (start, _) in itertools.pairwise(got)), got
        assert len(got) <= -(-segment.size // RUN_BYTES) + 1, got
        assert all(start % BLOCK_BYTES == 0 for start, _ in got)
        store.ranges.pop(manifest_object(segment), None)
    assert not store.ranges


def test_a_look_up_fetches_nothing_ahead(
    log: Log, made: tuple[Path, Watched, list[RemoteSegment]]
) -> None:
    _, store, copied = made
    store.ranges.clear()
    middle = (copied[0].base + copied[0].end) // 2
    log.read("t", start={0: middle}, end={0: middle + 1}).read_all()
    assert log_object(copied[1]) not in store.ranges
    asked = sum(end - start for start, end in store.ranges[log_object(copied[0])])
    assert asked <= 2 * BLOCK_BYTES
