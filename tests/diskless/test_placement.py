"""Where chunks lie: inline, staged, by a table; and what two million of them cost."""

import resource
import time
from dataclasses import replace

import numpy as np
import pytest

from sparklog.common import TopicPartition
from sparklog.diskless import extent_tables, placement
from sparklog.diskless.entries import ENTRY_BYTES_MAX, Entry, encode
from sparklog.diskless.names import new_staged_name, parse_staged
from sparklog.diskless.placement import Placement, settled
from sparklog.diskless.staged_chunks import gathered
from sparklog.diskless.staging import DisklessStaging
from sparklog.format.scan import scan
from sparklog.storage.chunk_table import IN_MEMORY, ROW_DTYPE, ChunkLocation, ChunkTable
from sparklog.storage.commits import Chunk
from sparklog.storage.ledger_records import AppendRecord
from sparklog.storage.offset_ranges import OffsetRange
from sparklog.storage.staging import Framing
from sparklog.testing.faultstore import FaultStore
from sparklog.tiered.keyring import Keyring
from tests.diskless.staged import LOG_ID, URL, Reading, rows, topic

RING = Keyring({"k1": b"1" * 32}, "k1")


def memory_chunks(values: dict[int, list[str]], name: str = "t") -> list[Chunk]:
    plan = DisklessStaging(url=URL, log_id=LOG_ID, head=0, store=FaultStore())
    stager = plan.memory_stager(Framing(), spread="x")
    for partition, some in values.items():
        stager.add(topic(name), rows(some), partition=partition)
    return list(stager.finish())


def staged(store: FaultStore) -> list[str]:
    return [one.name for one in store.list() if parse_staged(LOG_ID, one.name) is not None]


def test_chunks_of_a_partition_that_ride_inline_are_one_extent():
    chunks = memory_chunks({0: ["a"], 1: ["b"]}) + memory_chunks({0: ["c", "d"], 2: ["e"]})
    store = FaultStore()
    placed = Placement(store, LOG_ID, chunks).place(5)
    assert [(key.partition, extent.end) for key, extent in placed.extents] == [
        (0, 3),
        (1, 1),
        (2, 1),
    ]
    assert sum(extent.size for _, extent in placed.extents) == len(placed.data)
    assert Reading(store, placed).values()[0] == [(100, "a"), (101, "c"), (102, "d")]
    assert scan(chunks[2].data or b"", path="p").table["base_offset"][0] == 0  # the caller's stay


def test_too_much_to_ride_inline_is_one_staged_object_put_once():
    chunks = memory_chunks({0: ["a" * 3000], 1: ["b"]})
    store = FaultStore()
    one = Placement(store, LOG_ID, chunks, label="driver")
    placed = one.place(5, inline_bytes_max=1000)
    (name,) = staged(store)
    assert parse_staged(LOG_ID, name) == 5
    assert "/driver-" in name
    assert placed.data == b""
    assert one.place(6, inline_bytes_max=0) is placed
    assert one.place(6, inline_bytes_max=1 << 20) is placed  # it lies there now
    assert staged(store) == [name]
    assert Reading(store, placed).values() == {0: [(100, "a" * 3000)], 1: [(200, "b")]}


def test_offsets_are_given_behind_the_ends_for_each_attempt():
    chunks = memory_chunks({0: ["a", "b"], 1: ["c"]})
    placed = Placement(FaultStore(), LOG_ID, chunks).place(5)
    t0, t1 = TopicPartition("t", 0), TopicPartition("t", 1)
    once = dict(settled(placed.extents, {t0: 10, t1: 0}, epoch=2))
    again = dict(settled(placed.extents, {t0: 12, t1: 3}, epoch=3, stamps={"t": 999}))
    assert (once[t0].base, once[t0].end, once[t0].epoch, once[t0].stamp_ms) == (10, 12, 2, -1)
    assert (again[t0].base, again[t0].end, again[t0].max_timestamp) == (12, 14, 999)
    assert again[t1].stamp_ms == 999
    assert once[t1].max_timestamp == 1000


def test_sealed_inline_data_say_how_large_they_are():
    chunks = memory_chunks({0: ["a" * 100_000], 1: ["b"]})
    store = FaultStore()
    placed = Placement(store, LOG_ID, chunks, keyring=RING).place(5)
    assert set(placed.keys) == {""}
    assert placed.keys[""].size == sum(extent.size for _, extent in placed.extents)
    assert len(placed.data) > placed.keys[""].size
    assert Reading(store, placed, RING).values()[1] == [(200, "b")]
    direct = Placement(store, LOG_ID, chunks, keyring=RING).place(5, inline_bytes_max=0)
    assert Reading(store, direct, RING).values() == Reading(store, placed, RING).values()


def test_many_small_tasks_are_one_put():
    store = FaultStore()
    one = memory_chunks({p: [f"v{p}"] for p in range(3)})
    chunks = gathered([ChunkTable.of(one)] * 500, None)
    assert len(chunks) == 3
    placed = Placement(store, LOG_ID, chunks).place(5)
    assert staged(store) == []
    assert [extent.end for _, extent in placed.extents] == [500, 500, 500]
    assert [value for _, value in Reading(store, placed).values()[1]] == ["v1"] * 500


@pytest.mark.parametrize("ring", [None, RING])
def test_many_pieces_are_named_by_a_table(ring, monkeypatch):
    monkeypatch.setattr(placement, "TABLE_EXTENTS_MIN", 20)
    store = FaultStore()
    key = None if ring is None else b"t" * 32
    plan = DisklessStaging(
        url=URL, log_id=LOG_ID, head=3, store=store, parallel=1, transport_key=key
    )
    tables = []
    for task in range(12):
        stager = plan.stager(Framing(), label=f"w-{task}", task=100_000)
        stager.add(topic(), rows([f"{task}-{p}" for p in (0, 1)] * 100, [0, 1] * 100))
        tables.append(ChunkTable.of(stager.finish()))
    tables.append(ChunkTable.of(memory_chunks({0: ["inline"], 2: ["alone"]})))
    found = Placement(store, LOG_ID, plan.gathered(tables), keyring=ring)
    placed = found.place(5)
    assert placed.data == b""
    assert [extent.pieces for _, extent in placed.extents] == [13, 12, 0]
    assert len(staged(store)) == 12 + 1 + 1  # tasks, the driver's bytes, the table
    puts = store.counts.puts
    assert found.place(5, inline_bytes_max=0) is placed
    assert store.counts.puts == puts
    values = Reading(store, placed, ring).values()
    assert [value for _, value in values[0]] == [
        *(f"{task}-0" for task in range(12) for _ in range(100)), "inline",
    ]  # fmt: skip
    assert values[2] == [(300, "alone")]
    table = placed.extents[0][1].object
    assert extent_tables.objects_of(store.get(table), path="p") == set(staged(store)) - {table}


def test_one_task_of_many_partitions_needs_no_table():
    store = FaultStore()
    plan = DisklessStaging(url=URL, log_id=LOG_ID, head=3, store=store, parallel=1)
    stager = plan.stager(Framing(), label="w", task=100_000)
    stager.add(topic(partitions=400), rows(["v"] * 400, list(range(400))))
    placed = Placement(store, LOG_ID, stager.finish()).place(5)
    assert {extent.pieces for _, extent in placed.extents} == {0}
    assert len(placed.extents) == 400


def task_table(task: int, partitions: int) -> bytes:
    """What a task of a very large micro-batch reports."""
    rng = np.random.default_rng(task)
    some = np.zeros(partitions, ROW_DTYPE)
    some["partition"] = np.arange(partitions)
    some["size"] = rng.integers(20_000, 60_000, partitions)
    some["position"] = np.concatenate([[0], np.cumsum(some["size"])[:-1]])
    some["records"] = rng.integers(100, 300, partitions)
    some["min_timestamp"] = 1_700_000_000_000 + rng.integers(0, 60_000, partitions)
    some["max_timestamp"] = some["min_timestamp"] + rng.integers(0, 60_000, partitions)
    name = new_staged_name(LOG_ID, 41, f"0123456789abcdef-17-{task}")
    return ChunkTable([("t", "i" * 22)], [ChunkLocation(name)], some, b"").pack()


@pytest.mark.deep
def test_two_thousand_tasks_by_a_thousand_partitions():
    """Bytes to the driver, its memory, its time, and what the entry and the state carry."""
    tasks, partitions = 2000, 1000
    sent = [task_table(task, partitions) for task in range(tasks)]
    assert sum(map(len, sent)) < 48 << 20  # spark.driver.maxResultSize is 1 GiB
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    chunks = gathered([ChunkTable.unpack(raw) for raw in sent], None)
    assert len(chunks) == partitions
    assert sum(chunk.records for chunk in chunks) == sum(
        int(ChunkTable.unpack(raw).rows["records"].sum()) for raw in sent
    )
    store = FaultStore()
    placed = Placement(store, LOG_ID, chunks).place(42)
    took = time.monotonic() - began
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
    ends = {key: 0 for key, _ in placed.extents}
    extents = settled(placed.extents, ends, epoch=1)
    record = AppendRecord(ends={key: OffsetRange(e.base, e.end) for key, e in extents})
    entry = encode(42, Entry(id="a", prev="b", record=record, extents=extents))
    print(
        f"reports {sum(map(len, sent))} bytes, entry {len(entry)} bytes, driver {grown >> 20} MiB "
        f"and {took:.1f} s"
    )
    assert len(extents) == partitions
    assert len(entry) < 256 << 10 < ENTRY_BYTES_MAX
    assert grown < 700 << 20
    (name,) = staged(store)
    key, extent = extents[500]
    head = extent_tables.decode_head(store.get(name, limit=1 << 30), path=name)
    end = extent.start + extent_tables.block_size(extent)
    pieces = extent_tables.pieces_of(extent, head, store.get(name, extent.start, end), path=name)
    assert key.partition == 500
    assert len(pieces) == tasks
    first = ChunkTable.unpack(sent[0]).rows[500]
    assert (pieces[0].start, pieces[0].size) == (int(first["position"]), int(first["size"]))
    assert "-17-1999-" in pieces[-1].object


def test_chunk_table_comes_back():
    chunks = [
        *memory_chunks({0: ["a"], 2: ["b"]}),
        replace(memory_chunks({1: ["c"]})[0], data=None, path="o1", position=17, wrapped_key="{}"),
        replace(memory_chunks({1: ["d"]}, name="u")[0], idempotent=True),
        replace(
            memory_chunks({1: ["e"]})[0], data=None, path="/f", synced_boot_id="b", topic_id=""
        ),
    ]
    raw = ChunkTable.of(chunks).pack()
    found = list(ChunkTable.unpack(raw).chunks())
    for one, other in zip(chunks, found, strict=True):
        assert replace(one, data=None) == replace(other, data=None)
        assert (one.data is None) == (other.data is None)
        assert one.data is None or bytes(one.data) == bytes(other.data or b"")
    assert int((ChunkTable.unpack(raw).rows["place"] == IN_MEMORY).sum()) == 3
    assert len(ChunkTable.unpack(ChunkTable.of([]).pack())) == 0
