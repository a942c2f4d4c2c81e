"""A segment's copy: what lies in the store afterwards, and what must not get there."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import crc32c
import pyarrow as pa
import pytest

import sparklog
from sparklog.clock import ManualClock
from sparklog.errors import DataCorruptionError
from sparklog.format.checkpoint_files import parse_epochs
from sparklog.format.producer_snapshot import parse_snapshot
from sparklog.fs import LOCAL
from sparklog.log.cleaner_options import RateLimit
from sparklog.logdir.partition.segment_swap import retire
from sparklog.logdir.segment_files import segment_bases
from sparklog.storage.segment_store import SourceChangedError
from sparklog.testing.faultstore import SOME_FAULTS, FaultStore
from sparklog.tiered.copying.remote_storage_manager import RemoteStorageManager
from sparklog.tiered.encryption.envelope import open_data_key
from sparklog.tiered.keyring import Keyring
from sparklog.tiered.layout.manifest import part
from sparklog.tiered.remote_segment import SegmentState
from tests.logdir.partitions import batch, create, marker, transactional
from tests.tiered.logs import Put, data_of, filled, manifests, puts_of

RING = Keyring({"k": bytes(range(32))}, "k")


@pytest.fixture
def log(tmp_path: Path, clock: ManualClock) -> Iterator[sparklog.Log]:
    with filled(tmp_path / "log", clock) as opened:
        yield opened


@pytest.fixture
def puts(log: sparklog.Log, clock: ManualClock) -> list[Put]:
    found = puts_of(log, clock)
    assert len(found) >= 3
    return found


def directory_of(put: Put) -> Path:
    return Path(put.data.where).parent


def local(put: Put, suffix: str, base: int | None = None) -> bytes:
    base = put.segment.base if base is None else base
    return (directory_of(put) / f"{base:020d}{suffix}").read_bytes()


def test_a_copy_is_whole(puts: list[Put], clock: ManualClock) -> None:
    """Every file of the segment, as it lies in the log dir; the snapshot at its end."""
    store = FaultStore(clock=clock)
    for put in puts:
        made = RemoteStorageManager(store, clock).copy(put)
        assert made.segment == dataclasses.replace(
            put.segment, state=SegmentState.COPY_FINISHED, time_ms=clock()
        )
        raw = local(put, ".log")
        assert store.get(made.log_name) == raw
        assert made.crc32c == made.stored_crc32c == crc32c.crc32c(raw)
    assert len(store.list()) == 2 * len(puts)
    for put, (manifest, body) in zip(puts, manifests(store), strict=True):
        assert manifest.config == put.config
        for suffix in (".index", ".timeindex"):
            assert part(manifest, body, suffix) == local(put, suffix)
        assert part(manifest, body, ".txnindex") is None
        assert part(manifest, body, ".snapshot") == local(put, ".snapshot", put.segment.end)
        epochs = part(manifest, body, "leader-epoch-checkpoint")
        assert parse_epochs(epochs, "epochs") == [(0, 0)]


def test_several_at_once(puts: list[Put], clock: ManualClock) -> None:
    store = FaultStore(clock=clock)
    done = list(RemoteStorageManager(store, clock, threads=4).put(puts))
    assert {d.put.segment.id for d in done} == {j.segment.id for j in puts}
    assert all(d.error is None and d.stored_bytes == d.put.segment.size for d in done)
    assert len(manifests(store)) == len(puts)


def test_encrypted(puts: list[Put], clock: ManualClock) -> None:
    store = FaultStore(clock=clock)
    made = RemoteStorageManager(store, clock, keyring=RING).copy(puts[0])
    raw, stored = local(puts[0], ".log"), store.get(made.log_name)
    assert len(stored) == made.stored_size > len(raw)
    assert crc32c.crc32c(stored) == made.stored_crc32c
    assert made.crc32c == crc32c.crc32c(raw)
    ((manifest, body),) = manifests(store)
    key = open_data_key(RING, manifest.segment.id, manifest.encryption)
    assert key.open_range(stored, 0, len(raw), len(raw), path="t") == raw
    opened = key.open_body(body, path="t")
    assert part(manifest, opened, ".index") == local(puts[0], ".index")
    assert b"leader" not in body


def test_damaged_indexes_and_snapshots_are_made_anew(puts: list[Put], clock: ManualClock) -> None:
    good, store = FaultStore(clock=clock), FaultStore(clock=clock)
    RemoteStorageManager(good, clock).copy(puts[0])
    directory = directory_of(puts[0])
    for name, data in {
        f"{0:020d}.index": b"\xff" * 13,
        f"{0:020d}.timeindex": b"",
        f"{puts[0].segment.end:020d}.snapshot": b"x",
    }.items():
        (directory / name).write_bytes(data)
    RemoteStorageManager(store, clock).copy(puts[0])
    assert store.bucket.objects == good.bucket.objects
    (directory / f"{puts[0].segment.end:020d}.snapshot").unlink()
    RemoteStorageManager(store, clock).copy(puts[0])
    assert store.bucket.objects == good.bucket.objects


def test_transactions_and_producers_go_along(tmp_path: Path, clock: ManualClock) -> None:
    """The snapshot at the segment's end, and its aborted transactions."""
    made = create(tmp_path / "t-0", clock=clock)
    for data in (
        transactional(batch("a", producer=(7, 0, 0))),
        marker(0, producer_id=7),
        batch("b", producer=(9, 0, 0)),
    ):
        made.append(data, 3)
    made.roll()
    made.append(batch("c"), 3)
    made.sync()
    with filled(tmp_path / "log", clock) as log:
        like = puts_of(log, clock)[0]
    size = (tmp_path / "t-0" / f"{0:020d}.log").stat().st_size
    segment = dataclasses.replace(like.segment, end=3, size=size, has_txn_index=True)
    put = dataclasses.replace(like, segment=segment, data=data_of(segment, str(tmp_path / "t-0")))
    store = FaultStore(clock=clock)
    RemoteStorageManager(store, clock).copy(put)
    ((manifest, body),) = manifests(store)
    snapshot = parse_snapshot(part(manifest, body, ".snapshot") or b"", "t")
    assert {e.producer_id for e in snapshot} == {7, 9}
    assert len(part(manifest, body, ".txnindex") or b"") == 34
    epochs = part(manifest, body, "leader-epoch-checkpoint")
    assert parse_epochs(epochs or b"", "t") == [(3, 0)]


def test_a_segment_of_other_offsets_gets_no_copy(puts: list[Put], clock: ManualClock) -> None:
    wrong = dataclasses.replace(puts[1].segment, base=0)
    put = dataclasses.replace(puts[0], segment=dataclasses.replace(wrong, size=wrong.size))
    path = directory_of(put)
    (path / f"{0:020d}.log").write_bytes(local(puts[1], ".log"))
    with pytest.raises(DataCorruptionError, match="the batches don't match"):
        short = dataclasses.replace(put.segment, end=put.segment.base + 1)
        RemoteStorageManager(FaultStore(), clock).copy(dataclasses.replace(put, segment=short))


@pytest.mark.parametrize(
    ("how", "when"),
    [(how, "reading") for how in ("retired", "replaced", "grown")]
    + [(how, "before") for how in ("retired", "grown")],
)
def test_a_segment_that_changes_gets_no_copy(
    puts: list[Put], clock: ManualClock, how: str, when: str
) -> None:
    path = directory_of(puts[0]) / f"{0:020d}.log"

    def change(_: int = 0) -> None:
        if how == "retired":
            retire(LOCAL, str(directory_of(puts[0])), 0)
        elif how == "replaced":
            data = path.read_bytes()
            (path.parent / "new").write_bytes(data)
            (path.parent / "new").rename(path)
        else:
            with path.open("ab") as file:
                file.write(b"x")

    store = FaultStore(clock=clock)
    if when == "before":
        change()
        storage_manager = RemoteStorageManager(store, clock)
    else:
        storage_manager = RemoteStorageManager(store, clock, throttle=change)
    with pytest.raises(SourceChangedError):
        storage_manager.copy(puts[0])
    assert not [n for n in store.bucket.names() if n.endswith(".manifest")]


def test_rate(puts: list[Put], clock: ManualClock) -> None:
    """remote.log.manager.copy.max.bytes.per.second holds for all threads together."""
    now = [0.0]
    brake = RateLimit(1000, timer=lambda: now[0], sleep=lambda ms: now.__setitem__(0, now[0] + ms))
    list(RemoteStorageManager(FaultStore(), clock, throttle=brake).put(puts))
    copied = sum(j.segment.size for j in puts)
    assert now[0] == pytest.approx(copied, rel=0.2)  # at 1 byte a ms


def test_what_was_finished_is_not_sent_again(puts: list[Put], clock: ManualClock) -> None:
    store = FaultStore(clock=clock)
    made = RemoteStorageManager(store, clock).copy(puts[0])
    again = store.reopen()
    put = dataclasses.replace(puts[0], resumed=True)
    assert RemoteStorageManager(again, clock).copy(put) == made
    assert again.effects == []


def test_an_encrypted_copy_is_resumed_only_if_it_was_finished(
    puts: list[Put], clock: ManualClock
) -> None:
    """Two uploads under two data keys must never meet in one pair of objects."""
    store, put = FaultStore(clock=clock), dataclasses.replace(puts[0], resumed=True)
    with pytest.raises(SourceChangedError, match="can't be resumed"):
        RemoteStorageManager(store, clock, keyring=RING).copy(put)
    made = RemoteStorageManager(store, clock, keyring=RING).copy(puts[0])
    assert RemoteStorageManager(store, clock, keyring=RING).copy(put) == made


@pytest.mark.parametrize("seed", range(10))
def test_a_bad_network_changes_nothing(puts: list[Put], clock: ManualClock, seed: int) -> None:
    good = FaultStore()
    list(RemoteStorageManager(good, lambda: 5).put(puts))
    store = FaultStore(seed=seed, faults=SOME_FAULTS, attempts=20, part_bytes=128)
    assert all(d.error is None for d in RemoteStorageManager(store, lambda: 5).put(puts))
    assert {n: data for n, (data, _) in store.bucket.objects.items()} == {
        n: data for n, (data, _) in good.bucket.objects.items()
    }


def test_a_large_segment_in_bounded_memory(tmp_path: Path, clock: ManualClock) -> None:
    """Pieces are of a few MiB, whatever the segment's size."""
    config = {"remote.storage.enable": "true", "segment.bytes": str(32 << 20)}
    config["max.message.bytes"] = str(2 << 20)
    with sparklog.open(tmp_path / "log", "rw", clock=clock) as log:
        log.create_topic("t", config=config)
        block = pa.table({"value": [bytes(1 << 20)] * 40})
        log.append("t", block)
        (put, *_) = puts_of(log, clock)
    pieces: list[int] = []
    RemoteStorageManager(FaultStore(part_bytes=8 << 20), clock, throttle=pieces.append).copy(put)
    assert sum(pieces) == put.segment.size > 30 << 20
    assert max(pieces) <= 4 << 20
    assert segment_bases(LOCAL, str(directory_of(put)))[0] == 0
