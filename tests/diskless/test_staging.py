"""Staging in a store: what a task puts, what it sends, what becomes of it when a put fails."""

import gc
import pickle
import random
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
import pytest

from sparklog.clock import ManualClock
from sparklog.diskless.names import HOME, parse_staged
from sparklog.diskless.object_keys import (
    from_text,
    new_object_key,
    new_transport_key,
    rewrap_key,
    to_text,
    transport_ring,
)
from sparklog.diskless.placement import Placement
from sparklog.diskless.staging import (
    STORES,
    STORES_MAX,
    DisklessStaging,
    OpenedStores,
    StagedObjects,
    inline_bytes_max,
)
from sparklog.errors import (
    BatchConflictError,
    CommitUnknownError,
    InvalidRequestError,
    StorageUnavailableError,
)
from sparklog.storage.chunk_table import ChunkTable
from sparklog.storage.commits import Chunk
from sparklog.storage.staging import INLINE_BYTES, Framing
from sparklog.testing.faultstore import Faults, FaultStore
from sparklog.tiered.keyring import Keyring
from sparklog.tiered.object_store.object_store import ObjectStore
from sparklog.tiered.target import open_store
from tests.diskless.staged import LOG_ID, URL, Reading, rows, topic

RING = Keyring({"k1": b"1" * 32}, "k1")


def test_every_host_has_the_same_store() -> None:
    elsewhere = DisklessStaging(url=URL, log_id=LOG_ID, head=7, store=FaultStore(), parallel=1)
    with pytest.raises(InvalidRequestError, match="Give every host the same store"):
        elsewhere.check()
    staging().check()


def test_sealed_rows_need_the_key_of_the_job_and_the_key_ring() -> None:
    transport = new_transport_key()
    _, key = new_object_key(transport_ring(transport), 10)
    with pytest.raises(InvalidRequestError, match="commit the chunks that the staging of the log"):
        from_text(to_text(key), None)
    sealed = from_text(to_text(key), transport)
    with pytest.raises(InvalidRequestError, match=r"open it with option remote\.keyring"):
        rewrap_key(None, sealed)
    assert rewrap_key(RING, sealed).wrapped.key_id == "k1"


def staging(store: ObjectStore | None = None, **given: object) -> DisklessStaging:
    store = FaultStore() if store is None else store
    store.put(HOME, LOG_ID.encode())
    fields = {"url": URL, "log_id": LOG_ID, "head": 7, "store": store, "parallel": 1, **given}
    return DisklessStaging(**fields, clock=ManualClock())


def task(
    staging: DisklessStaging,
    batches: Sequence[pa.RecordBatch],
    number: int = 0,
    partitions: int = 3,
) -> ChunkTable:
    """What the driver has of a task."""
    stager = staging.stager(Framing(), label=f"w-1-{number}", task=number)
    for batch in batches:
        stager.add(topic(partitions=partitions), batch)
    return ChunkTable.unpack(ChunkTable.of(stager.finish()).pack())


def framed(
    staging: DisklessStaging,
    batches: Sequence[pa.RecordBatch],
    number: int = 0,
    partitions: int = 3,
) -> ChunkTable:
    """The same of a task whose rows the JVM frames: it gives a table for each object."""

    def tables() -> Iterator[ChunkTable]:
        stager, size = staging.memory_stager(Framing(), spread=""), 0
        for batch in batches:
            stager.add(topic(partitions=partitions), batch)
            size += batch.nbytes
            if size >= staging.object_bytes:
                yield ChunkTable.of(stager.finish())
                stager, size = staging.memory_stager(Framing(), spread=""), 0
        yield ChunkTable.of(stager.finish())

    each = (replace(table, data=bytes(table.data)) for table in tables() if len(table))
    return ChunkTable.unpack(staging.put(each, label=f"w-1-{number}", task=number).pack())


Task = Callable[..., ChunkTable]
BOTH = pytest.mark.parametrize("task", [task, framed])


def large(count: int, partitions: int = 3, seed: int = 1) -> pa.RecordBatch:
    """So many records of 4 KiB, which don't compress."""
    rng = random.Random(seed)
    values = [f"{n:08}{rng.randbytes(2044).hex()}" for n in range(count)]
    return rows(values, [n % partitions for n in range(count)])


def staged_names(store: ObjectStore) -> list[str]:
    return [one.name for one in store.list() if parse_staged(LOG_ID, one.name) is not None]


@BOTH
def test_small_task_sends_its_bytes_and_puts_nothing(task: Task):
    store = FaultStore()
    plan = staging(store)
    found = task(plan, [rows(["a", "b", "c"], [0, 1, 0]), rows(["d"], [2])])
    chunks = plan.gathered([found])
    assert staged_names(store) == []
    placement = Placement(store, LOG_ID, chunks)
    placed = placement.place(9)
    assert staged_names(store) == []
    assert [extent.object for _, extent in placed.extents] == ["", "", ""]
    assert Reading(store, placed).values() == {
        0: [(100, "a"), (101, "c")],
        1: [(200, "b")],
        2: [(300, "d")],
    }


@BOTH
def test_large_task_is_one_object_of_all_partitions_put_once(task: Task):
    store = FaultStore()
    plan = staging(store)
    before = store.counts.puts
    found = task(plan, [large(150), large(150, seed=2)])
    (name,) = staged_names(store)
    assert store.counts.puts == before + 1
    assert parse_staged(LOG_ID, name) == 7
    assert name.partition("/")[2].startswith(f"{7:020d}/w-1-0-")
    assert found.data == b""
    assert len(found) == 3
    sizes = found.rows["size"].tolist()
    assert found.rows["position"].tolist() == [0, sizes[0], sizes[0] + sizes[1]]
    assert sum(sizes) == len(store.get(name))
    if task is not framed:  # the JVM's tables come with theirs: tests/jvm/test_staging.py
        assert (found.rows["crc"] >= 0).all()
    placement = Placement(store, LOG_ID, plan.gathered([found]))
    values = Reading(store, placement.place(9)).values()
    assert [len(some) for some in values.values()] == [100, 100, 100]
    assert staged_names(store) == [name]


@BOTH
@pytest.mark.parametrize("parallel", [1, 3])
def test_task_of_any_size_is_objects_of_a_bounded_size(parallel, task: Task):
    store = FaultStore()
    plan = staging(store, object_bytes=400_000, parallel=parallel)
    batches = [large(90, seed=n) for n in range(12)]
    found = task(plan, batches)
    names = staged_names(store)
    assert len(names) >= 4
    assert {p.path for p in found.places} == set(names)
    assert all(len(store.get(name)) < 2 << 20 for name in names)
    placed = Placement(store, LOG_ID, plan.gathered([found])).place(9)
    expected = {
        p: [v.decode() for b in batches for v in b["value"].to_pylist()[p::3]] for p in range(3)
    }
    values = Reading(store, placed).values()
    assert {p: [value for _, value in some] for p, some in values.items()} == expected


@BOTH
def test_tasks_send_less_the_more_they_are(task: Task):
    assert inline_bytes_max(0) == inline_bytes_max(31) == INLINE_BYTES
    assert inline_bytes_max(32) == INLINE_BYTES // 2
    assert sum(map(inline_bytes_max, range(2000))) < 40 << 20
    store = FaultStore()
    plan = staging(store)
    assert len(task(plan, [large(40)], number=0).data) > 160_000
    assert len(task(plan, [large(40)], number=40).data) == 0
    assert len(staged_names(store)) == 1


@BOTH
def test_partition_gets_what_tasks_staged_in_the_order_of_the_tasks(task: Task):
    store = FaultStore()
    plan = staging(store)
    tables = [
        task(plan, [rows(["a", "b"], [0, 1])], 0),
        task(plan, [large(150)], 1),
        task(plan, [rows(["c", "d"], [0, 2])], 2),
        task(plan, [], 3),
        task(plan, [rows(["e"], [0])], 4),
    ]
    chunks = plan.gathered(tables)
    assert [chunk.partition for chunk in chunks] == [0, 1, 2]
    assert [chunk.records for chunk in chunks] == [53, 51, 51]
    assert chunks[0].min_timestamp == 1000
    for inline in (1 << 20, 0):
        values = Reading(
            store, Placement(store, LOG_ID, chunks).place(9, inline_bytes_max=inline)
        ).values()
        assert values[0][0][1] == "a"
        assert [value for _, value in values[0]][-2:] == ["c", "e"]
        assert values[2][-1][1] == "d"
        assert len(values[0]) == 53
    assert plan.gathered([]) == []


def test_failed_put_fails_the_task_retriably_and_nothing_is_reported():
    store = FaultStore(attempts=1)
    plan = staging(store, object_bytes=400_000)
    stager = plan.stager(Framing(), label="w-1-0", task=0)
    stager.add(topic(), large(300, 1))
    assert len(staged_names(store)) >= 1
    store.requests.faults = Faults(busy=1)
    with pytest.raises(StorageUnavailableError) as caught:
        stager.add(topic(), large(300, 1, seed=2))
        stager.finish()
    assert caught.value.retriable
    stager.discard()  # the store is still away: what is there is swept
    assert len(staged_names(FaultStore(store.bucket))) >= 1
    store.requests.faults = Faults()
    stager.discard()
    assert staged_names(store) == []


@pytest.mark.parametrize("parallel", [1, 2])
def test_what_was_framed_and_put_goes_when_the_rest_fails(parallel):
    store = FaultStore(attempts=1)
    plan = staging(store, parallel=parallel)
    stager = plan.memory_stager(Framing(), spread="")
    stager.add(topic(), large(60))
    one = ChunkTable.of(stager.finish())

    def tables(error: Exception | None) -> Iterator[ChunkTable]:
        yield from (one, one, one)
        if error is not None:
            raise error
        assert staged_names(store)
        store.requests.faults = Faults(busy=1)
        yield one

    with pytest.raises(InvalidRequestError, match="a row is bad"):
        plan.put(tables(InvalidRequestError("a row is bad")), label="w-1-0")
    assert staged_names(store) == []
    with pytest.raises(StorageUnavailableError):
        plan.put(tables(None), label="w-1-0")


def test_failed_put_in_a_thread_is_told():
    store = FaultStore(attempts=1)
    plan = staging(store, object_bytes=400_000, parallel=2)
    stager = plan.stager(Framing(), label="w-1-0", task=0)
    store.requests.faults = Faults(busy=1)
    with pytest.raises(StorageUnavailableError):
        for seed in range(4):
            stager.add(topic(), large(300, 1, seed=seed))
        stager.finish()
    stager.discard()


@BOTH
def test_lost_answer_is_a_put_again_under_the_same_name(task: Task):
    store = FaultStore(seed=3, faults=Faults(lost=0.5))
    plan = staging(store)
    found = task(plan, [large(300)])
    good = FaultStore(store.bucket)
    assert len(staged_names(good)) == 1
    placed = Placement(good, LOG_ID, plan.gathered([found])).place(9)
    assert sum(map(len, Reading(good, placed).values().values())) == 300


@BOTH
def test_two_attempts_never_share_a_name(task: Task):
    store = FaultStore()
    plan = staging(store)
    task(plan, [large(300)])
    task(plan, [large(300)])
    assert len(staged_names(store)) == 2


@BOTH
@pytest.mark.parametrize("url", ["file", "memory"])
def test_sealed_objects_and_inline_data(url, tmp_path, task: Task):
    store = open_store(f"file://{tmp_path}" if url == "file" else "memory://sealed-staging")
    plan = staging(store, transport_key=new_transport_key(), object_bytes=400_000, parallel=2)
    tables = [
        task(plan, [rows(["secret"] * 3, [0, 1, 2])], 0),
        task(plan, [large(120, seed=n) for n in range(3)], 1),
    ]
    assert all(table.places[0].wrapped_key for table in tables if table.places)
    chunks = plan.gathered(tables)
    with pytest.raises(InvalidRequestError, match=r"remote\.keyring"):
        Placement(store, LOG_ID, chunks).place(9)
    placed = Placement(store, LOG_ID, chunks, keyring=RING).place(9)
    assert {key.wrapped.key_id for key in placed.keys.values()} == {"k1"}
    assert len({key.wrapped.wrapped_key for key in placed.keys.values()}) == len(placed.keys) > 2
    assert b"secret" not in placed.data
    assert sum(map(len, Reading(store, placed, RING).values().values())) == 363
    staged = Placement(store, LOG_ID, chunks, keyring=RING).place(9, inline_bytes_max=0)
    assert staged.data == b""
    assert all(b"secret" not in store.get(name) for name in staged_names(store))
    assert sum(map(len, Reading(store, staged, RING).values().values())) == 363


def test_check_knows_the_log():
    store = FaultStore()
    plan = staging(store)
    plan.check()
    gets = store.counts.gets
    plan.check()
    assert store.counts.gets == gets  # once a process
    other = DisklessStaging(url=URL, log_id="O" * 22, head=0, store=store)
    with pytest.raises(InvalidRequestError, match="another log"):
        other.check()
    empty = DisklessStaging(url=URL, log_id=LOG_ID, head=0, store=FaultStore())
    with pytest.raises(InvalidRequestError, match="no log"):
        empty.check()
    away = FaultStore(attempts=1)
    away.requests.faults = Faults(busy=1)
    with pytest.raises(StorageUnavailableError):
        DisklessStaging(url=URL, log_id=LOG_ID, head=0, store=away).check()


def test_stores_of_a_process_are_bounded_and_a_dropped_one_is_closed():
    stores = OpenedStores(2)
    first = stores.store("memory://a", {})
    assert stores.store("memory://a", {}) is first
    closed: list[str] = []
    weakref.finalize(first, closed.append, "first")  # as s3fs registers the end of its client
    for url in ("memory://b", "memory://c", "memory://d"):
        stores.store(url, {})
    assert len(stores.keys()) == 2
    first.put("used", b"still")  # a task that holds a dropped store continues
    gc.collect()
    assert not closed
    del first
    gc.collect()
    assert closed == ["first"]


def test_a_log_that_was_checked_does_not_keep_its_store_open():
    store = FaultStore()
    plan = staging(store)
    plan.check()
    closed: list[str] = []
    weakref.finalize(store, closed.append, "store")
    del store, plan
    gc.collect()
    assert closed == ["store"]


def test_the_stores_of_tasks_are_bounded(tmp_path):
    for number in range(STORES_MAX + 3):
        url = f"file://{tmp_path}/{number}"
        open_store(url).put(HOME, LOG_ID.encode())
        DisklessStaging(url=url, log_id=LOG_ID, head=0).check()
    assert len(STORES.keys()) == STORES_MAX


def test_no_secret_is_in_the_key_of_a_store():
    stores = OpenedStores(4)
    options = {"secret": "s3cr3t", "nested": {"token": "t0k3n"}}
    first = stores.store("memory://a", options)
    assert stores.store("memory://a", dict(reversed(options.items()))) is first
    assert stores.store("memory://a", {**options, "secret": "other"}) is not first
    keys = stores.keys()
    assert len(keys) == 2
    shown = repr(keys)
    for word in ("s3cr3t", "t0k3n", "other"):
        assert word not in shown


def test_pickled_for_a_task_without_a_word_of_secrets(tmp_path):
    secret = {"key": "AKIAEXAMPLE", "secret": "hush-hush"}
    plan = staging(storage_options=secret, transport_key=b"t" * 32)
    assert "hush" not in repr(plan)
    assert "AKIA" not in repr(plan)
    assert "ttt" not in repr(plan)
    shared = f"file://{tmp_path}"
    open_store(shared).put(HOME, LOG_ID.encode())
    plan = DisklessStaging(url=shared, log_id=LOG_ID, head=12)
    there = pickle.loads(pickle.dumps(plan))
    there.check()
    assert there.home == shared
    found = task(there, [large(300)])
    (name,) = staged_names(open_store(shared))
    assert parse_staged(LOG_ID, name) == 12
    assert found.places[0].path == name


def test_refused_commit_leaves_nothing_but_what_is_unknown_stays():
    store = FaultStore()
    plan = staging(store)
    chunks = plan.gathered([task(plan, [large(300)])])
    for cause in (None, CommitUnknownError("?", position=1, attempt="a"), KeyboardInterrupt()):
        plan.discard(chunks, cause=cause)
        assert len(staged_names(store)) == 1
    plan.discard(chunks, cause=BatchConflictError("another"))
    assert staged_names(store) == []
    staged = plan.stager(Framing(), label="w-2-0")
    staged.add(topic(), large(300))
    chunks = staged.finish()
    plan.discard(chunks, cause=InvalidRequestError("no"))
    assert staged_names(store) == []


def test_planned_topic():
    info = staging().planned_topic("new", 2, topic().config)
    assert info.id == ""
    assert info.dirs == {0: f"{URL}/new-0", 1: f"{URL}/new-1"}


def test_memory_stager():
    stager = staging().memory_stager(Framing(), spread="w-1")
    stager.add(topic(), rows(["a"], [1]))
    (chunk,) = stager.finish()
    assert isinstance(chunk, Chunk)
    assert chunk.data is not None
    assert chunk.topic_id == "id-t"


def test_place_alone_closes_chunks_together():
    place = StagedObjects(FaultStore(), lambda: "x", inline_max=0, object_bytes=100, parallel=1)
    assert place.home
    assert place.finish([]) == []
