"""A log dir whose older segments are remote reads as it did when they were local."""

import os
import random
from pathlib import Path
from typing import Any

import pytest

import sparklog
from sparklog.clock import ManualClock, system_clock
from sparklog.errors import (
    DataCorruptionError,
    StorageUnavailableError,
)
from sparklog.fs import LOCAL
from sparklog.log.log import Log
from sparklog.logdir.home import commits_of
from sparklog.logdir.segment_files import segment_bases
from sparklog.service import Service
from sparklog.tiered.layout.manifest import log_object, manifest_object
from sparklog.tiered.remote_log_metadata.topic import ensure_topic, publish
from sparklog.tiered.remote_segment import RemoteSegment
from tests.logdir.partitions import T0
from tests.service.logs import SMALL, fill
from tests.tiered.buckets import DictStore, copy_partition, objects, tiered_log
from tests.tiered.logs import filled

KEPT = 3  # local segments that stay


def tiered(path: Path, store: DictStore) -> Log:
    return tiered_log(path, objects(store))


def note(path: Path, segments: list[RemoteSegment]) -> None:
    with sparklog.open(path, "rw") as log:
        ensure_topic(commits_of(log))
        publish(commits_of(log), system_clock, segments, found=True)


def forget(directory: Path, bases: list[int]) -> None:
    """Remove segments as local retention does: nothing but the snapshot of what stays is left."""
    for base in bases:
        for name in os.listdir(directory):
            if name.startswith(f"{base:020d}."):
                (directory / name).unlink()


@pytest.fixture
def made(tmp_path: Path) -> tuple[Path, DictStore, list[RemoteSegment]]:
    """Two partitions, all closed segments copied; nothing removed yet."""
    path, store = tmp_path / "log", DictStore()
    with sparklog.open(path, "rw") as log:
        log.create_topic("t", partitions=2, config={**SMALL, "remote.storage.enable": True})
        fill(log, "t", 0, 30)
        fill(log, "t", 1, 17)
    copied = [s for p in (0, 1) for s in copy_partition(path / f"t-{p}", store)]
    note(path, copied)
    return path, store, copied


def test_a_copy_that_is_not_found_is_named(
    made: tuple[Path, DictStore, list[RemoteSegment]],
) -> None:
    """Its neighbours are there, so this one is lost; but nobody must think that a disk lost it."""
    path, store, copied = made
    forget(path / "t-0", segment_bases(LOCAL, str(path / "t-0"))[:-KEPT])
    lost = next(s for s in copied if s.partition == 0)
    for gone in (log_object(lost), manifest_object(lost)):
        store.delete([gone])
        with tiered(path, store) as log, pytest.raises(DataCorruptionError) as raised:
            log.read("t", partitions=[0]).read_all()
        assert gone in str(raised.value)
        assert "other objects of the topic exist" in str(raised.value)
        assert (raised.value.first, raised.value.path) == (lost.base, str(path / "t-0"))


def test_a_store_that_has_nothing_of_the_topic_is_another_one(
    made: tuple[Path, DictStore, list[RemoteSegment]],
) -> None:
    """A wrong endpoint or bucket: nothing is lost, and with the right one the same call works."""
    path, store, copied = made
    with sparklog.open(path) as log:
        wanted = [log.read("t", partitions=[p]).read_all() for p in (0, 1)]
    forget(path / "t-0", segment_bases(LOCAL, str(path / "t-0"))[:-KEPT])
    (topic_id,) = {s.topic_id for s in copied}
    other = DictStore()
    other.put(f"t-0-{'x' * 22}/00000000000000000000.log-start", b"")  # of another log's
    with tiered(path, other) as log:
        with pytest.raises(StorageUnavailableError, match=r"t-0: .*not the store .*endpoint_url"):
            log.read("t", partitions=[0]).read_all()
        with pytest.raises(StorageUnavailableError, match="not the store"):
            log.offsets_for_times("t", {0: T0 + 100})
        assert log.read("t", partitions=[1]).read_all().equals(wanted[1])  # is local
        other.put(f"owners/{topic_id}", b"who")  # it is the store, then, and the copies are lost
        with pytest.raises(DataCorruptionError, match="other objects of the topic exist"):
            log.read("t", partitions=[0]).read_all()
        other.objects.update(store.objects)
        assert log.read("t", partitions=[0]).read_all().equals(wanted[0])


def test_reads_and_times_do_not_care_where_a_segment_lies(
    made: tuple[Path, DictStore, list[RemoteSegment]],
) -> None:
    path, store, copied = made
    times = range(T0 - 500, T0 + 31_000, 500)
    with sparklog.open(path) as log:
        whole, spans = log.read("t").read_all(), log.offsets("t")
        held = [log.offsets_for_times("t", when) for when in times]
    for p in (0, 1):
        forget(path / f"t-{p}", segment_bases(LOCAL, str(path / f"t-{p}"))[:-KEPT])
    rng = random.Random(5)
    with tiered(path, store) as log:
        assert log.offsets("t") == spans
        assert log.read("t").read_all().equals(whole)
        assert [log.offsets_for_times("t", when) for when in times] == held
        local = {p: segment_bases(LOCAL, str(path / f"t-{p}"))[0] for p in (0, 1)}
        assert log.offsets_for_times("t", -4) == local
        ends = {p: max(s.end for s in copied if s.partition == p) for p in (0, 1)}
        assert log.offsets_for_times("t", -5) == {p: end - 1 for p, end in ends.items()}
        assert log.read("t", isolation="read_committed").read_all().equals(whole)
        for _ in range(50):
            first, last = sorted(rng.sample(range(spans[0][1] + 1), 2))
            given: Any = {"partitions": [0], "start": {0: first}, "end": {0: last}}
            assert log.read("t", **given).read_all().equals(whole.slice(first, last - first))


def test_nothing_remote_is_asked_for_while_all_is_local(
    made: tuple[Path, DictStore, list[RemoteSegment]],
) -> None:
    path, store, _ = made
    store.requests.clear()
    with tiered(path, store) as log:
        log.read("t").read_all()
        log.offsets_for_times("t", T0 + 3000)
    assert not store.requests


def test_a_segment_that_goes_while_it_is_read_comes_from_its_copy(
    made: tuple[Path, DictStore, list[RemoteSegment]],
) -> None:
    path, store, _ = made
    with tiered(path, store) as log:
        whole = log.read("t", [0]).read_all()
        batches = log.read("t", [0])
        begun = batches.read_next_batch()
        forget(path / "t-0", segment_bases(LOCAL, str(path / "t-0"))[:-KEPT])
        rest = list(batches)
        assert begun.num_rows + sum(batch.num_rows for batch in rest) == whole.num_rows
        assert log.offsets_for_times("t", {0: T0}) == {0: 0}


def test_copies_of_another_history_do_not_count(
    made: tuple[Path, DictStore, list[RemoteSegment]],
) -> None:
    path, store, copied = made
    forget(path / "t-0", segment_bases(LOCAL, str(path / "t-0"))[:-KEPT])
    checkpoint = path / "t-0" / "leader-epoch-checkpoint"
    text = checkpoint.read_text().split("\n")
    epoch = int(text[2].split()[0])
    checkpoint.write_text(f"0\n1\n{epoch + 5} 0\n")
    assert copied[0].epochs[0][0] == epoch
    with tiered(path, store) as log, pytest.raises(DataCorruptionError):
        log.read("t", [0]).read_all()


def test_a_copy_that_is_lost_is_reported(
    made: tuple[Path, DictStore, list[RemoteSegment]],
) -> None:
    path, store, copied = made
    forget(path / "t-0", segment_bases(LOCAL, str(path / "t-0"))[:-KEPT])
    for name in [n for n in store.objects if copied[1].id in n]:
        del store.objects[name]
    with tiered(path, store) as log, pytest.raises(DataCorruptionError):
        log.read("t", [0]).read_all()


def test_a_manifest_of_another_copy_is_refused(tmp_path: Path) -> None:
    clock = ManualClock()
    (tmp_path / "bucket").mkdir()
    with filled(tmp_path / "log", clock, 12, partitions=2, local_retention_bytes="0"):
        for _ in range(3):
            Service(tmp_path / "log", remote=f"file://{tmp_path}/bucket", clock=clock).run_once()
    ours, theirs = (
        min((tmp_path / "bucket").glob(f"t-{p}-*/*.manifest")) for p in (0, 1)
    )  # fmt: skip
    first, second = ours.read_bytes(), theirs.read_bytes()
    with sparklog.open(tmp_path / "log") as log:
        records = log.read("t").read_all()
    ours.write_bytes(second)
    theirs.write_bytes(first)
    for partition in (0, 1):
        with (
            sparklog.open(tmp_path / "log") as log,
            pytest.raises(DataCorruptionError, match="this is the manifest of another copy"),
        ):
            log.read("t", [partition]).read_all()
    ours.write_bytes(first)
    theirs.write_bytes(second)
    with sparklog.open(tmp_path / "log") as log:
        assert log.read("t").read_all() == records
