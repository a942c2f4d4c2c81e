"""Compacted topics in remote storage: a cleaned segment's copy takes the place of its sources'."""

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import sparklog
from sparklog.clock import ManualClock
from sparklog.fs import LOCAL
from sparklog.log.log import Log
from sparklog.logdir.segment_files import segment_bases
from sparklog.service import Service, verify
from sparklog.tiered.layout.topic_owners import PREFIX
from tests.tiered.buckets import DictStore, archive_log, objects

URL = "dict://bucket"
CONFIG = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": 2000,
    "min.cleanable.dirty.ratio": 0.01,
    "delete.retention.ms": 0,
    "remote.storage.enable": True,
    "local.retention.bytes": 1,
    "file.delete.delay.ms": 0,
}


def append(log: sparklog.Log, rng: random.Random, count: int) -> None:
    for _ in range(count):
        keys = [f"key-{rng.randrange(12)}".encode() for _ in range(10)]
        values = [None if rng.random() < 0.2 else rng.randbytes(20) for _ in keys]
        log.append("t", pa.table({"key": keys, "value": pa.array(values, pa.binary())}))


def latest(table: pa.Table) -> dict[bytes, bytes | None]:
    return dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))


def archive(store: DictStore) -> Log:
    return archive_log(URL, objects(store), refresh_ms=0)


def rounds(path: Path, clock: ManualClock, store: DictStore, **given: Any) -> Service:
    return Service(
        path, remote=URL, clock=clock, opening=lambda url, options: store,
        options={"remote.log.manager.copier.thread.pool.size": "1"}, **given,
    )  # fmt: skip


def test_a_cleaned_segment_takes_its_sources_place(tmp_path: Path, clock: ManualClock) -> None:
    path, store, rng = tmp_path / "log", DictStore(), random.Random(1)
    replaced = 0
    with sparklog.open(path, "rw", clock=clock) as log:
        log.create_topic("t", config=CONFIG)
        for _ in range(6):
            append(log, rng, 12)
            clock.advance(60_000)
            before = {n for n in store.objects if n.endswith(".manifest")}
            service = rounds(path, clock, store)
            for _ in range(2):  # what one cleans the next one copies
                clock.advance(1000)
                assert not service.run_once().errors
            service.close()
            after = {n for n in store.objects if n.endswith(".manifest")}
            replaced += len(before - after)
            bases = segment_bases(LOCAL, str(path / "t-0"))
            assert bases[0] == 0  # all of it stays here
            copied = [name for name in store.objects if not name.startswith(PREFIX)]
            assert len(after) == len(copied) // 2 == len(bases) - 1
            with archive(store) as remote:
                end = remote.offsets("t")[0][1]
                assert end == bases[-1]
                held = log.read("t", end={0: end}).read_all()
                assert remote.read("t").read_all().equals(held)
    assert replaced > 6
    assert verify(path).ok


def test_a_reader_in_flight_finishes(tmp_path: Path, clock: ManualClock) -> None:
    path, store, rng = tmp_path / "log", DictStore(), random.Random(2)
    with sparklog.open(path, "rw", clock=clock) as log:
        log.create_topic("t", config=CONFIG)
        append(log, rng, 60)
        service = rounds(path, clock, store)
        service.run_once()
        with archive(store) as remote:
            end = remote.offsets("t")[0][1]
            batches = remote.read("t")  # up to the end as of now
            seen = latest(pa.Table.from_batches([batches.read_next_batch()]))
            before = {n for n in store.objects if n.endswith(".log")}
            append(log, rng, 60)
            for _ in range(4):
                clock.advance(60_000)
                service.run_once()
            assert not before & store.objects.keys()  # all that it was reading is gone
            seen |= latest(batches.read_all())
        service.close()
        held = log.read("t").read_all().filter(pc.field("offset") < end)
        behind = latest(log.read("t", start={0: end}).read_all())
        # What the log still holds below the end was seen, or was read before it went.
        assert latest(held).items() <= seen.items()
        assert all(
            key in behind or value is None or latest(held)[key] == value
            for key, value in seen.items()
        )
