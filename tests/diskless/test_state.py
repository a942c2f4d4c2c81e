"""The fold: what entries make of a state, and what doesn't follow."""

import random
from collections.abc import Sequence
from typing import Any

import pytest

from sparklog.common import TopicPartition
from sparklog.diskless.entries import (
    Entry,
    EntryRecord,
    FloorRecord,
    MergeRecord,
    ObjectKey,
    TermRecord,
    decode,
    encode,
)
from sparklog.diskless.extents import Extent
from sparklog.diskless.names import entry_name
from sparklog.diskless.state import DisklessState
from sparklog.diskless.state_objects import decode_state, encode_state
from sparklog.errors import DataCorruptionError
from sparklog.storage.ledger_records import (
    AppendRecord,
    CommitRecord,
    DropRecord,
    ResetRecord,
    StartRecord,
    TopicRecord,
)
from sparklog.storage.offset_ranges import OffsetRange
from sparklog.tiered.layout.manifest import WrappedKey

T0 = TopicPartition("t", 0)
CONFIG: dict[str, str] = {}


class Folding:
    """A state, and entries that are encoded, decoded and folded one after the other."""

    def __init__(self) -> None:
        self.state = DisklessState("log")
        self._ids = iter(f"{n:032x}" for n in range(10**6))

    def add(self, record: EntryRecord, data: bytes = b"", **given: object) -> DisklessState:
        number = self.state.next_number
        fields: dict[str, Any] = {"record": record, **given}
        entry = Entry(id=next(self._ids), prev=self.state.entry_id, **fields)
        raw = encode(number, entry, data)
        self.state.apply(decode(raw, number=number, path="p"), path="p")
        return self.state

    def topic(self, name: str = "t", base: int = 0, topic_id: str = "id1") -> None:
        self.add(TopicRecord(topic=name, id=topic_id, dirs={0: 0}, config=CONFIG, bases={0: base}))

    def rows(
        self, count: int, name: str = "", record: type = AppendRecord, **given: object
    ) -> None:
        first = self.state.log.ends[T0]
        extent = Extent(first, first + count, name, 0, 10 * count, 1, 0, -1)
        ends = {T0: OffsetRange(first, first + count)}
        given = {"before": -1, **given}
        before = given.pop("before")
        self.add(
            record(ends=ends, **given), b"" if name else bytes(10 * count),
            extents=((T0, extent),), before=before,
        )  # fmt: skip


@pytest.fixture
def log() -> Folding:
    folding = Folding()
    folding.topic()
    return folding


def test_inline_extents_lie_in_their_entry(log: Folding) -> None:
    log.rows(3)
    (extent,) = log.state.extents[T0]
    assert extent.object == entry_name("log", 1)
    assert extent.start > 0
    assert extent.born == 1
    assert log.state.names_by_entry() == {1}


def test_a_merge_replaces_what_it_read_and_nothing_else(log: Folding) -> None:
    log.add(TermRecord(term=1))
    for name in "abc":
        log.rows(2, name)
    old = log.state.extents[T0]
    merged = Extent(0, 4, "t-0-id1/x.log", 0, 40, 1, 0, -1, "x" * 22)
    record = MergeRecord(
        term=1, topic="t", topic_id="id1", partition=0, sources=tuple(e.place for e in old[:2])
    )
    with pytest.raises(DataCorruptionError, match="don't fill the replaced"):
        log.add(record, extents=((T0, merged._replace(end=3)),))
    log.add(record, extents=((T0, merged),))
    assert [e.object for e in log.state.extents[T0]] == ["t-0-id1/x.log", "c"]
    with pytest.raises(DataCorruptionError, match="don't exist in"):
        log.add(record, extents=((T0, merged),))


@pytest.mark.parametrize(
    ("changes", "why"),
    [({"term": 0}, "term"), ({"topic_id": "id2"}, "another topic"), ({"partition": 1}, "t-1")],
)
def test_a_merge_of_a_past_term_or_topic_is_refused(
    log: Folding, changes: dict[str, object], why: str
) -> None:
    log.add(TermRecord(term=1))
    log.rows(2, "a")
    extent = log.state.extents[T0][0]
    fields = {"term": 1, "topic": "t", "topic_id": "id1", "partition": 0} | changes
    record = MergeRecord(sources=(extent.place,), **fields)  # type: ignore[arg-type]
    new = extent._replace(object="new")
    with pytest.raises(DataCorruptionError, match=why):
        log.add(record, extents=((TopicPartition("t", record.partition), new),))


def test_commits_must_begin_at_the_ends_and_fill_them(log: Folding) -> None:
    extent = Extent(1, 2, "a", 0, 5, 1, 0, -1)
    with pytest.raises(DataCorruptionError, match="ends at 0"):
        log.add(AppendRecord(ends={T0: OffsetRange(1, 2)}), extents=((T0, extent),))
    with pytest.raises(DataCorruptionError, match="don't fill"):
        log.add(AppendRecord(ends={T0: OffsetRange(0, 2)}), extents=((T0, extent),))
    with pytest.raises(DataCorruptionError, match="have other partitions"):
        log.add(AppendRecord(ends={T0: OffsetRange(0, 2)}))
    others = ((T0, extent._replace(base=0)), (TopicPartition("t", 1), extent))
    with pytest.raises(DataCorruptionError, match="have other partitions"):
        log.add(AppendRecord(ends={T0: OffsetRange(0, 2)}), extents=others)


def test_entries_of_two_histories_are_never_mixed(log: Folding) -> None:
    entry = Entry(id="x", prev="of another history", record=TermRecord(term=1))
    with pytest.raises(DataCorruptionError, match="rolled back while a writer had it open"):
        log.state.apply(entry, path="p")


def test_a_topic_that_is_made_again_begins_at_its_old_end(log: Folding) -> None:
    log.rows(5)
    log.add(DropRecord(topic="t", id="id1"))
    assert T0 not in log.state.extents
    assert log.state.former == {"id1": ("t", 1)}
    with pytest.raises(DataCorruptionError, match="below its old end"):
        log.topic(topic_id="id2")
    log.topic(base=5, topic_id="id2")
    assert log.state.log.ends[T0] == log.state.log.starts[T0] == 5


def test_a_higher_log_start_lets_go_of_whole_extents(log: Folding) -> None:
    for name in "abc":
        log.rows(2, name)
    log.add(StartRecord(starts={T0: 3}))
    assert [e.object for e in log.state.extents[T0]] == ["b", "c"]
    log.add(StartRecord(starts={T0: 6}))
    assert log.state.extents[T0] == ()
    log.rows(1, "d")
    assert [e.base for e in log.state.extents[T0]] == [6]


def test_writers_commits_are_chained_and_a_reset_sets_the_chain_back(log: Folding) -> None:
    for batch in range(3):
        before = log.state.commits.get("q", -1)
        log.rows(
            1, f"o{batch}", CommitRecord, writer="q", batch=batch, fingerprint="f", before=before
        )
    assert log.state.commits == {"q": 3}
    reset = ResetRecord(writer="q", batch=0, writers={"q": None}, abandoned={})
    log.add(reset, kept_commits={"q": 1})
    assert log.state.commits == {"q": 1}
    assert log.state.resets == {"q": 4}


def test_terms_grow_and_floors_belong_to_one(log: Folding) -> None:
    log.add(TermRecord(term=4))
    with pytest.raises(DataCorruptionError, match="is not above"):
        log.add(TermRecord(term=4))
    log.add(FloorRecord(term=4, floor=1))
    log.add(FloorRecord(term=4, floor=0))  # it never falls
    with pytest.raises(DataCorruptionError, match="not the log's"):
        log.add(FloorRecord(term=3, floor=2))
    assert log.state.floor == 1


def test_a_copy_is_a_picture_of_the_moment(log: Folding) -> None:
    log.rows(2, "a")
    picture = log.state.copy()
    log.rows(2, "b")
    log.add(DropRecord(topic="t", id="id1"))
    assert picture.log.ends == {T0: 2}
    assert [e.object for e in picture.extents[T0]] == ["a"]
    assert picture.number == 1


@pytest.mark.parametrize("how", ["trim", "drop"])
def test_data_keys_of_all_partitions_are_forgotten_by_one_look(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Each look costs all extents: one a partition would take minutes of 10,000 partitions."""
    log, count = Folding(), 20
    dirs = dict.fromkeys(range(count), 0)
    log.add(TopicRecord(topic="t", id="id1", dirs=dirs, config=CONFIG, bases=dirs))
    keys = [TopicPartition("t", p) for p in dirs]
    wrapped = WrappedKey("s", "k", "w" * 40, 512)
    sealed = {str(n): ObjectKey("s", wrapped, 9) for n in range(count)}
    log.add(
        AppendRecord(ends={key: OffsetRange(0, 2) for key in keys}), keys=sealed,
        extents=tuple((k, Extent(0, 2, str(k.partition), 0, 9, 1, 0, -1)) for k in keys),
    )  # fmt: skip
    assert log.state.keys.keys() == sealed.keys()
    looked = counted(monkeypatch)
    if how == "trim":
        log.add(StartRecord(starts=dict.fromkeys(keys[1:], 2)))
        assert log.state.keys.keys() == {"0"}
    else:
        log.add(DropRecord(topic="t", id="id1"))
        assert not log.state.keys
    assert sum(looked) <= count


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many extents are looked at for who still uses an object, each time."""
    looked: list[int] = []
    look = DisklessState.count_uses

    def use(state: DisklessState, extents: Sequence[Extent]) -> None:
        if state._uses:
            looked.append(len(extents))
        look(state, extents)

    monkeypatch.setattr(DisklessState, "count_uses", use)
    return looked


def sealed_row(log: Folding, name: str, parts: Sequence[int] = (0,)) -> None:
    """Commit two rows each of these partitions, in one object with a data key."""
    keys = [TopicPartition("t", p) for p in parts]
    ends = {key: OffsetRange(log.state.log.ends[key], log.state.log.ends[key] + 2) for key in keys}
    wrapped = WrappedKey("s", "k", "w" * 40, 512)
    log.add(
        AppendRecord(ends=ends), keys={name: ObjectKey("s", wrapped, 9)},
        extents=tuple((k, Extent(*ends[k], name, 9 * n, 9, 1, 0, -1)) for n, k in enumerate(keys)),
    )  # fmt: skip


def sealed_merge(log: Folding, partition: int, first: int, end: int, name: str) -> None:
    key = TopicPartition("t", partition)
    old = log.state.extents[key][first:end]
    merged = Extent(old[0].base, old[-1].end, name, 0, 9, 1, 0, -1, "x" * 22)
    record = MergeRecord(
        term=1, topic="t", topic_id="id1", partition=partition, sources=tuple(e.place for e in old)
    )
    wrapped = WrappedKey("s", "k", "w" * 40, 512)
    log.add(record, extents=((key, merged),), keys={name: ObjectKey("s", wrapped, 9)})


def test_a_merge_of_an_encrypted_log_looks_at_what_it_replaces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All extents are looked at once, and never again: 7 ms a merge of 100,000."""
    log = Folding()
    log.topic()
    log.add(TermRecord(term=1))
    for n in range(200):
        sealed_row(log, f"o{n}")
    looked = counted(monkeypatch)
    for n in range(20):
        sealed_merge(log, 0, n, n + 5, f"m{n}")
        log.state = log.state.copy()
    assert sum(looked) <= 200 + 20
    assert log.state.keys.keys() == {e.object for e in log.state.extents[T0]}


@pytest.mark.parametrize("seed", range(20))
def test_of_data_keys_those_stay_whose_objects_are_named(seed: int) -> None:
    rng, log = random.Random(seed), Folding()
    dirs = dict.fromkeys(range(3), 0)
    log.add(TopicRecord(topic="t", id="id1", dirs=dirs, config=CONFIG, bases=dirs))
    log.add(TermRecord(term=1))
    for n in range(60):
        key = TopicPartition("t", rng.randrange(3))
        held = log.state.extents.get(key, ())
        what = rng.choice("aaamts")
        before, keys = log.state, log.state.keys.copy()
        log.state = before.copy()
        if what == "m" and held:
            first = rng.randrange(len(held))
            sealed_merge(log, key.partition, first, rng.randint(first + 1, len(held)), f"m{n}")
        elif what == "t" and held:
            log.add(StartRecord(starts={key: rng.choice(held).end}))
        elif what == "s":  # as a written state is read again
            raw = encode_state(log.state)
            log.state = decode_state(raw, path="p")
        else:
            sealed_row(log, f"o{n}", rng.sample(range(3), rng.randint(1, 3)))
        assert log.state.keys.keys() == log.state.live_objects()
        assert before.keys == keys
    log.add(DropRecord(topic="t", id="id1"))
    assert not log.state.keys


def test_data_keys_of_a_deleted_topic_stay(log: Folding) -> None:
    """One task's object holds rows of both topics; those of the other one are gone."""
    log.topic("u", topic_id="id2")
    parts = (T0, TopicPartition("u", 0))
    extents = tuple((key, Extent(0, 1, "o", n, 1, 1, 0, -1)) for n, key in enumerate(parts))
    ends = dict.fromkeys(parts, OffsetRange(0, 1))
    sealed = ObjectKey("s", WrappedKey("s", "k", "w" * 40, 512), 9)
    log.add(AppendRecord(ends=ends), extents=extents, keys={"o": sealed})
    log.add(DropRecord(topic="u", id="id2", delay_ms=1000))
    log.add(StartRecord(starts={T0: 1}))
    assert set(log.state.keys) == {"o"}
