"""A bucket alone reads as the log that it was copied from; requests are few."""

import random
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sparklog
from sparklog.errors import DataCorruptionError, InvalidRequestError
from sparklog.format.scan import rebase
from sparklog.log.log import Log
from sparklog.tiered.archive.bucket import group, listed_segments
from sparklog.tiered.archive.view import ArchiveView
from sparklog.tiered.layout.object_names import log_start_name, parse_directory
from sparklog.tiered.remote_segment import RemoteSegment, SegmentState
from tests import paths
from tests.logdir.partitions import T0, TOPIC_ID, batch
from tests.service.logs import SMALL, fill
from tests.tiered.buckets import DictStore, archive_log, copy_partition, objects, store_segment
from tests.waiting import until

URL = "dict://bucket"
GOLDEN = paths.GOLDEN / "kafka-4.1"


def archive(store: DictStore, **options: Any) -> Log:
    return archive_log(URL, objects(store), **options)


@pytest.fixture
def made(tmp_path: Path) -> tuple[Path, DictStore]:
    """A log with topic t of two partitions, and a bucket with all its closed segments."""
    path, store = tmp_path / "log", DictStore()
    with sparklog.open(path, "rw") as log:
        log.create_topic("t", partitions=2, config=SMALL)
        fill(log, "t", 0, 30)
        fill(log, "t", 1, 17)
    for p in (0, 1):
        copy_partition(path / f"t-{p}", store)
    return path, store


def test_every_record_and_every_time_as_in_the_log(made: tuple[Path, DictStore]) -> None:
    path, store = made
    with sparklog.open(path) as log, archive(store) as remote:
        spans = remote.offsets("t")
        assert all(0 < end <= log.offsets("t")[p][1] for p, (_, end) in spans.items())
        ends = {p: end for p, (_, end) in spans.items()}
        whole = log.read("t", end=ends).read_all()
        assert remote.read("t").read_all().equals(whole)
        assert whole.num_rows == sum(ends.values())
        for when in range(T0 - 500, T0 + 30_000, 500):
            held = log.offsets_for_times("t", when)
            expected = {p: o if o is not None and o < ends[p] else None for p, o in held.items()}
            assert remote.offsets_for_times("t", when) == expected, when
        assert remote.offsets_for_times("t", -4) == {0: None, 1: None}
        assert remote.offsets_for_times("t", -5) == {p: end - 1 for p, end in ends.items()}
        assert log.offsets_for_times("t", -4) == {0: 0, 1: 0}
        assert log.offsets_for_times("t", -5) == {0: None, 1: None}
        assert remote.topic("t").config.retention_ms == -1
        assert remote.topic("t").id == log.topic("t").id


@pytest.mark.parametrize("name", sorted(p.name for p in (GOLDEN / "logdir").glob("*-0")))
def test_a_brokers_partitions(name: str, tmp_path: Path) -> None:
    # All of the log, active segment included, as the broker had it; both isolation levels.
    source, topic = GOLDEN / "logdir", name.removesuffix("-0")
    with sparklog.open(source) as log:
        start, end = log.offsets(topic)[0]
        if not end:
            pytest.skip("an empty partition has nothing to copy")
        store = DictStore()
        copy_partition(source / name, store, end=end, gaps=True)
        copied = parse_directory(next(iter(store.objects)).partition("/")[0])
        assert copied is not None
        store.put(copied.prefix + log_start_name(start), b"")
        with archive(store) as remote:
            for isolation in ("read_uncommitted", "read_committed"):
                expected = log.read(topic, [0], isolation=isolation).read_all()
                found = remote.read(topic, [0], start={0: start}, isolation=isolation).read_all()
                assert found.equals(expected)
            for when in (-1, -2, -3, 0, T0, T0 + 10_000, 2 * T0):
                held = log.offsets_for_times(topic, {0: when})
                assert remote.offsets_for_times(topic, {0: when}) == held
            assert remote.end_offset_for_epoch(topic, 0, 0) == log.end_offset_for_epoch(topic, 0, 0)


def thousand_segments() -> DictStore:
    """1,000 segments of one topic, each of 4 batches of one record, a second apart."""
    store = DictStore()
    for n in range(1000):
        log, entries = bytearray(), bytearray()
        for at in range(4):
            stamp = T0 + 1000 * (4 * n + at)
            data = bytearray(batch("x" * 1000, at=stamp))
            rebase(memoryview(data), 4 * n + at, 0)
            if at:
                entries += struct.pack(">ii", at, len(log))
            log += data
        segment = RemoteSegment(
            topic="t", topic_id=TOPIC_ID, partition=0, id=f"{n:022d}", base=4 * n,
            end=4 * n + 4, max_timestamp=stamp, size=len(log), epochs=((0, 4 * n),),
            state=SegmentState.COPY_FINISHED, time_ms=n,
        )  # fmt: skip
        times = struct.pack(">qi", stamp, 3)
        store_segment(store, segment, bytes(log), {".index": bytes(entries), ".timeindex": times})
    return store


@pytest.mark.deep
def test_few_requests_in_a_large_archive() -> None:
    store = thousand_segments()
    with archive(store) as remote:
        assert remote.offsets("t") == {0: (0, 4_000)}
        assert [kind for kind, _, _ in store.requests].count("get") <= 1  # the topic's configs
        for wanted in random.Random(3).sample(range(4_000), 20):
            store.requests.clear()
            assert remote.offsets_for_times("t", T0 + 1000 * wanted) == {0: wanted}
            assert len(store.requests) <= 4
            assert all(size < 1 << 20 for _, _, size in store.requests)
            store.requests.clear()
            rows = remote.read("t", start={0: wanted}, end={0: wanted + 1}).read_all()
            assert rows.num_rows == 1
            assert not store.requests  # the block of the look-up holds it


def test_a_segment_that_was_cleaned_takes_its_sources_place(made: tuple[Path, DictStore]) -> None:
    path, store = made
    copied = listed_segments(*next(iter(group(store.list("t-1-")).items())))
    sources = copied[:2]
    log = b"".join((path / "t-1" / f"{s.base:020d}.log").read_bytes() for s in sources)
    merged = replace(
        sources[0], id="m" * 22, end=sources[1].end, size=len(log), epochs=((0, 0),), time_ms=0
    )
    with archive(store) as remote:
        before = remote.read("t", [1]).read_all()
    # No index at all, and by its time it is the oldest: that it names its sources decides.
    ids = tuple(segment.id for segment in sources)
    store_segment(store, merged, log, {}, replaces=ids)
    with archive(store) as remote:
        store.requests.clear()
        assert remote.read("t", [1]).read_all().equals(before)
        read = {name for _, name, _ in store.requests if name.endswith(".log")}
        assert len(read) == len(copied) - 1
        assert any("m" * 22 in name for name in read)


def test_a_manifest_without_its_log_is_not_shown(made: tuple[Path, DictStore]) -> None:
    _, store = made
    last = max(n for n in store.objects if n.startswith("t-0-") and n.endswith(".log"))
    del store.objects[last]
    with archive(store) as remote:
        assert remote.offsets("t")[0][1] < 50
        remote.read("t").read_all()


def test_a_hole_is_reported_with_its_range(made: tuple[Path, DictStore]) -> None:
    _, store = made
    logs = sorted(n for n in store.objects if n.startswith("t-0-") and n.endswith(".log"))
    for name in list(store.objects):
        if name.startswith(logs[1].removesuffix(".log")):
            del store.objects[name]
    with archive(store) as remote, pytest.raises(DataCorruptionError, match="expected"):
        remote.read("t", [0]).read_all()


def test_a_copy_that_was_deleted_is_not_read_from_the_cache(made: tuple[Path, DictStore]) -> None:
    """Records that an erasure removed must not come back, not even at the next use."""
    _, store = made
    view = ArchiveView(store.url, objects(store), refresh_ms=0)
    before = view.of_partition("t", 0, lambda segments: segments)
    first = min(n for n in store.objects if n.startswith("t-0-") and n.endswith(".log"))
    for name in list(store.objects):
        if name.startswith(first.removesuffix(".log")):
            del store.objects[name]
    view.refresh()
    now = view.of_partition("t", 0, lambda segments: segments)
    assert now is not before
    view.refresh()
    assert view.of_partition("t", 0, lambda segments: segments) is now


def test_nothing_can_be_written(made: tuple[Path, DictStore]) -> None:
    _, store = made
    with archive(store) as remote:
        with pytest.raises(InvalidRequestError, match="reading"):
            remote.append("t", pa.table({"value": ["x"]}))
        with pytest.raises(InvalidRequestError, match="an archive has none until it is restored"):
            remote.commit_offsets("g", {"t": {0: 1}})


def test_news_show(made: tuple[Path, DictStore]) -> None:
    _, store = made
    hidden = {n: store.objects.pop(n) for n in list(store.objects) if n.startswith("t-1-")}
    with archive(store, refresh_ms=0) as remote:
        assert list(remote.offsets("t")) == [0]
        store.objects |= hidden
        until(lambda: list(remote.topics()["t"].dirs) == [0, 1])
        assert remote.read("t", [1]).read_all().num_rows > 0
