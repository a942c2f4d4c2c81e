"""States as objects: what they keep, when they are written, and when they aren't taken."""

import logging
import random
import time
from dataclasses import replace
from pathlib import Path

import pytest

from sparklog.clock import system_clock
from sparklog.common import TopicPartition
from sparklog.config import LogOptions
from sparklog.diskless import state_objects
from sparklog.diskless.commit_log import DisklessCommits
from sparklog.diskless.entries import ObjectKey, ProducerBatch
from sparklog.diskless.entry_creation import RetryPolicy
from sparklog.diskless.extents import Extent
from sparklog.diskless.ledger import EntryReader, Head
from sparklog.diskless.names import entry_name, state_name
from sparklog.diskless.state import FOLD_VERSION, DisklessState, producer_table
from sparklog.diskless.state_objects import (
    StateObjects,
    StateWriter,
    decode_state,
    encode_state,
)
from sparklog.errors import DataCorruptionError, StorageUnavailableError
from sparklog.log.admin import create_topic, reset_writers
from sparklog.log.commit import Identity, commit
from sparklog.log.log import home_of
from sparklog.log.producer_state import ProducerState, no_markers
from sparklog.storage.ledger_records import LastMicroBatch
from sparklog.storage.offset_ranges import OffsetRange
from sparklog.storage.topic_state import TopicState
from sparklog.testing.commits_contract import chunk
from sparklog.testing.faultstore import FaultStore
from sparklog.tiered.layout.manifest import WrappedKey
from sparklog.tiered.object_store.object_store import ObjectStore

T0 = TopicPartition("t", 0)


class Handle:
    """A process that writes to the log, and its states, in its own thread."""

    def __init__(self, store: ObjectStore) -> None:
        entries = EntryReader(store, "log")
        self.states = StateObjects(store, lambda: "log")
        self.head = Head(entries, newer=self.states.newest)
        self.commits = DisklessCommits(
            store.url, self.head, LogOptions(), system_clock, RetryPolicy(timeout_ms=1000),
            created=StateWriter(self.states, in_thread=False).created,
        )  # fmt: skip
        self.commits.catch_up()

    def write(self, count: int, first: int = 0) -> None:
        for batch in range(first, first + count):
            identity = Identity(writer=f"w{batch % 3}", batch=batch, fingerprint="f")
            commit(self.commits, [chunk(self.commits, 1)], identity=identity)


def states(store: FaultStore) -> list[str]:
    return [name for name in store.bucket.names() if name.startswith("state-")]


def everything() -> DisklessState:
    """A state that has something of all that there is."""
    state = DisklessState("log", 41, "attempt")
    log = state.log
    log.topics["t"] = TopicState("id1", {"retention.ms": "5"}, {0: 0, 1: 0}, True, {0: 7})
    log.ends = {T0: 30, TopicPartition("t", 1): 2}
    log.starts = {T0: 10}
    log.dropped = {TopicPartition("gone", 0): 9}
    log.writers = {"w": LastMicroBatch(3, "f", 5, {T0: OffsetRange(20, 30)})}
    log.idempotent, log.epoch, log.time_ms = {T0}, 4, 99
    log.abandoned = {T0: [OffsetRange(11, 13)]}
    state.extents = {
        T0: (
            Extent(10, 20, "t-0-id1/x.log", 0, 100, 50, 2, 12, segment="seg"),
            Extent(20, 30, "staged-log/5/a", 7, 10, -1, 4, 41, stamp_ms=6, pieces=2),
        )
    }
    state.epochs = {T0: ((2, 0), (4, 20))}
    state.gaps = {T0}
    state.former = {"id0": ("gone", 1)}
    state.commits, state.resets = {"w": 41}, {"w": 17}
    batches = [ProducerBatch(5, 1, 10 * n, 10 * n, 10 * n + 9, n) for n in range(7)]
    producers = ProducerState(0)
    producers.apply(producer_table(batches), no_markers)
    state.producers = {T0: producers}
    key = ObjectKey("staged", WrappedKey("AES256-GCM", "k", "d3JhcHBlZA==", 65536), 100, 3)
    state.keys = {"staged-log/5/a": key}
    state.term, state.holder, state.floor = 3, {"host": "h", "pid": 1}, 5
    return state


def plain(state: DisklessState) -> tuple[DisklessState, dict[TopicPartition, object]]:
    return replace(state, producers={}), {k: p.to_json() for k, p in state.producers.items()}


def test_a_state_keeps_all_that_is_known() -> None:
    state = everything()
    assert plain(decode_state(encode_state(state), path="p")) == plain(state)
    empty = DisklessState("log")
    assert decode_state(encode_state(empty), path="p") == empty


def test_no_flipped_bit_and_no_cut_is_taken() -> None:
    raw = encode_state(everything())
    rng = random.Random(7)
    damaged = [raw[:size] for size in range(0, len(raw), 11)]
    for bit in rng.sample(range(len(raw) * 8), 400):
        other = bytearray(raw)
        other[bit // 8] ^= 1 << bit % 8
        damaged.append(bytes(other))
    for one in damaged:
        try:
            state = decode_state(one, path="p")
        except (DataCorruptionError, ValueError):
            continue
        # Only the head's own words are without a checksum: entry n is compared with them.
        assert (state.number, state.entry_id) != (41, "attempt")


def test_who_opens_a_log_reads_the_newest_state_and_what_came_since(store: FaultStore) -> None:
    one = Handle(store)
    create_topic(one.commits, "t", 1, {}, False)
    one.write(249)
    reset_writers(one.commits, "w1", 100)
    assert states(store) == [state_name("log", n) for n in (99, 199)]
    before = store.counts.as_dict()
    two = Handle(store)
    after = store.counts.as_dict()
    assert plain(two.head.state) == plain(one.head.state)
    assert after["lists"] - before["lists"] == 1
    assert after["gets"] - before["gets"] == 2 + 16 + 32 + 64
    assert after["puts"] == before["puts"]


def test_a_state_is_written_by_who_creates_the_hundredth_entry(store: FaultStore) -> None:
    handles = [Handle(store) for _ in range(4)]
    create_topic(handles[0].commits, "t", 1, {}, False)
    for n in range(300):
        handles[n % 4].write(1, first=n)
    written = [e for e in store.effects if e.startswith("create state")]
    assert len(written) == len(states(store)) == 3


def test_a_large_state_waits_for_a_tenth_of_it(store: FaultStore) -> None:
    one = Handle(store)
    create_topic(one.commits, "t", 1, {}, False)
    one.write(98)
    one.states.known.note(-1, 2_000_000)  # the newest one is that large
    one.write(202, first=98)
    assert not states(store)


@pytest.mark.parametrize("how", ["damaged", "cut", "other history", "wrong number", "newer fold"])
def test_an_older_state_is_taken_for_one_that_is_not_good(
    store: FaultStore, how: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one = Handle(store)
    create_topic(one.commits, "t", 1, {}, False)
    one.write(220)
    newest = state_name("log", 199)
    raw = store.get(newest)
    flipped = raw[:-9] + bytes([raw[-9] ^ 1]) + raw[-8:]
    bad = {"damaged": flipped, "cut": raw[: len(raw) // 2]}.get(how, raw)
    if how == "other history":
        bad = encode_state(replace(decode_state(raw, path="p"), entry_id="another"))
    elif how == "newer fold":
        newer = raw.replace(b'"fold": %d' % FOLD_VERSION, b'"fold": 99')
        monkeypatch.setattr(state_objects, "FOLD_VERSION", 99)
        bad = encode_state(decode_state(newer, path="p"))
        monkeypatch.undo()
    elif how == "wrong number":
        newest = state_name("log", 999)
    store.put(newest, bad)
    with caplog.at_level(logging.WARNING):
        two = Handle(store)
    assert newest in caplog.text
    assert plain(two.head.state) == plain(one.head.state)
    assert two.states.known.number == (199 if how == "wrong number" else 99)


@pytest.mark.parametrize("how", ["good", "damaged", "newer fold"])
def test_a_state_proves_that_its_entry_existed(store: FaultStore, how: str) -> None:
    """A log that lost its newest entry is not opened one commit shorter."""
    one = Handle(store)
    create_topic(one.commits, "t", 1, {}, False)
    one.write(99)
    name, entry = state_name("log", 99), entry_name("log", 99)
    raw = store.get(name)
    changed = {
        "damaged": raw[:-9],
        "newer fold": raw.replace(b'"fold": %d' % FOLD_VERSION, b'"fold": 99'),
    }
    store.put(name, changed.get(how, raw))
    store.delete([entry])
    with pytest.raises(DataCorruptionError, match=r"was created \(.*the state after it\)") as told:
        Handle(store)
    assert told.value.path == f"{store.url}/{entry}"
    assert (told.value.first, told.value.end) == (99, 100)


def test_without_any_state_the_ledger_is_enough(store: FaultStore) -> None:
    one = Handle(store)
    create_topic(one.commits, "t", 1, {}, False)
    one.write(150)
    store.delete(states(store))
    assert plain(Handle(store).head.state) == plain(one.head.state)


def test_who_is_far_behind_lists_the_states(store: FaultStore) -> None:
    one, two = Handle(store), Handle(store)
    create_topic(one.commits, "t", 1, {}, False)
    one.write(2400)
    before = store.counts.as_dict()
    two.commits.catch_up()
    after = store.counts.as_dict()
    assert plain(two.head.state) == plain(one.head.state)
    assert after["lists"] - before["lists"] == 1
    assert after["gets"] - before["gets"] < 1700


def test_a_state_that_cannot_be_written_is_no_failure(
    store: FaultStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Handle(store)
    create_topic(one.commits, "t", 1, {}, False)

    def refuse(*_: object) -> None:
        raise StorageUnavailableError("no")

    monkeypatch.setattr(state_objects, "write_state", refuse)
    one.write(110)
    assert one.head.state.number == 110
    assert not states(store)


def test_a_state_of_ten_thousand_partitions_is_small_and_quick() -> None:
    state = DisklessState("log", 5000, "attempt")
    keys = [TopicPartition(f"topic{n % 100}", n // 100) for n in range(10_000)]
    for topic in range(100):
        dirs = dict.fromkeys(range(100), 0)
        state.log.topics[f"topic{topic}"] = TopicState(f"{topic:022d}", {}, dirs)
    state.log.ends = dict.fromkeys(keys, 1000)
    for key in keys:
        state.extents[key] = tuple(
            Extent(n * 100, n * 100 + 100, entry_name("log", 4000 + n), 17 * key.partition, 999,
                   1_700_000_000_000 + n, 0, 4000 + n)
            for n in range(10)
        )  # fmt: skip
    began = time.process_time()
    raw = encode_state(state)
    again = decode_state(raw, path="p")
    assert time.process_time() - began < 20
    assert len(raw) < 3 << 20
    assert again == state


def test_a_log_in_a_directory_writes_states_in_a_thread(tmp_path: Path) -> None:
    from sparklog.diskless.home import open_log

    with open_log(f"file://{tmp_path}/home", mode="rw") as log:
        create_topic(home_of(log).commits, "t", 1, {}, False)
        for _ in range(105):
            log.commit([chunk(home_of(log).commits, 1)])  # type: ignore[arg-type]
        log_id = home_of(log).identity
    assert (tmp_path / "home" / state_name(str(log_id), 99)).exists()


def test_a_log_of_a_million_commits_opens_with_five_looks(store: FaultStore) -> None:
    """The home object, the states' names, a state with its entry, and what came since."""
    writer = Handle(store)
    create_topic(writer.commits, "t", 1, {}, False)
    state = writer.head.state.copy()
    state.number, state.log.ends[T0] = 999_999, 999_999
    state.extents[T0] = (Extent(0, 999_999, "t-0/x.log", 0, 10**9, 5, 0, 7, segment="s"),)
    first = store.get(entry_name("log", 0))
    store.put(entry_name("log", 999_999), (999_999).to_bytes(8, "big") + first[8:])
    store.delete([entry_name("log", 0)])
    state_objects.write_state(store, state)
    one = Handle(store)
    one.write(60)
    before = store.counts.as_dict()
    two = Handle(store)
    after = store.counts.as_dict()
    assert two.head.state.number == 1_000_059
    assert two.head.state.log.ends[T0] == 1_000_059
    assert after["lists"] - before["lists"] == 1
    assert after["gets"] - before["gets"] == 2 + 16 + 32 + 64  # in four rounds
