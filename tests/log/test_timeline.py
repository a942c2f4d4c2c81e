"""timeline=current: rows that a reset abandoned are left out, and no others."""

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sparklog
from sparklog import InvalidRequestError, Log
from sparklog.clock import ManualClock
from sparklog.log import arrow_reads
from sparklog.log.log import home_of
from sparklog.log.timeline import timeline_of
from sparklog.logdir.home import commits_of
from sparklog.logdir.ledger import LedgerWriter
from sparklog.service import verify
from sparklog.storage.ledger_records import LedgerRecord, ResetRecord, SnapshotRecord
from sparklog.storage.log_state import LogState
from sparklog.storage.offset_ranges import OffsetRange, clipped, merged, outside, subtract
from tests.log.forks import fork
from tests.log.homes import IN_LOG_DIR
from tests.micro_batches import commit_batch

spans = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=8).map(
    lambda found: [OffsetRange(first, first + size) for first, size in found]
)


@given(spans, st.integers(0, 60), st.integers(0, 60), st.integers(1, 9))
def test_sets_of_offsets(some: list[OffsetRange], a: int, b: int, bridge: int) -> None:
    start, end = min(a, b), max(a, b)
    members = {n for first, last in some for n in range(first, last)}
    whole = merged(some)
    assert [n for first, last in whole for n in range(first, last)] == sorted(members)
    inside = clipped(whole, start, end)
    assert {n for s in inside for n in range(*s)} == members & set(range(start, end))
    rest = list(subtract(start, end, whole, bridge=bridge))
    read = [n for s in rest for n in range(*s)]
    assert read == sorted(read)
    assert set(range(start, end)) - members <= set(read) <= set(range(start, end))
    assert all(sum(first <= n < last for n in read) < bridge for first, last in inside)
    if read:
        batch = pa.record_batch({"offset": pa.array(read, pa.int64())})
        kept = outside(batch, whole).column("offset").to_pylist()
        assert kept == [n for n in read if n not in members]


# --- logs ----------------------------------------------------------------------------------------


@pytest.fixture
def log(log_path: str, clock: ManualClock) -> Iterator[Log]:
    with sparklog.open(log_path, "rw", clock=clock) as log:
        log.create_topic("t", 2)
        yield log


def commit(log: Log, batch: int, run: str = "", writer: str = "q", count: int = 1) -> None:
    """Commit `count` records to both partitions as `writer`."""
    rows = pa.table(
        {
            "value": [f"{writer} {batch}{run}"] * 2 * count,
            "partition": pa.array([0, 1] * count, pa.int32()),
        }
    )
    commit_batch(log, writer, batch, rows, fingerprint=f"{batch}{run}")


def values(log: Log, partition: int = 0, **given: object) -> list[str]:
    named = {"timeline": "current", "columns": ["value"], **given}
    found: Any = log.read("t", [partition], **named)  # type: ignore[arg-type]
    column = found.read_all().column("value")
    return [value.decode() for value in column.to_pylist()]


@pytest.mark.parametrize("bridge", [1, 4096], ids=["skipped", "dropped"])
@IN_LOG_DIR
def test_what_was_taken_back_is_left_out(
    log: Log, monkeypatch: pytest.MonkeyPatch, bridge: int
) -> None:
    monkeypatch.setattr(arrow_reads, "BRIDGE_OFFSETS", bridge)
    for batch in range(5):
        commit(log, batch)
        commit(log, batch, writer="other")
    assert len(values(log)) == len(values(log, timeline="all")) == 10
    log.reset("q", 2)
    others = [f"other {n}" for n in range(5)]
    for partition in (0, 1):  # at once, before anything is computed anew
        found = values(log, partition)
        assert [v for v in found if v.startswith("q")] == ["q 0", "q 1", "q 2"]
        assert [v for v in found if v.startswith("o")] == others
    for batch in (3, 4, 5):
        commit(log, batch, "b")
    assert [v for v in values(log) if v.startswith("q")] == [
        "q 0",
        "q 1",
        "q 2",
        "q 3b",
        "q 4b",
        "q 5b",
    ]
    log.reset("q", 3)
    log.reset("other", 0)
    commit(log, 4, "c")
    assert values(log) == ["q 0", "other 0", "q 1", "q 2", "q 3b", "q 4c"]
    assert len(values(log, timeline="all")) == 14
    assert values(log, start={0: 1}, end={0: 5}) == ["other 0", "q 1", "q 2"]
    log.reset("q", -1)
    assert values(log) == ["other 0"]
    assert verify(log.path).ok


@IN_LOG_DIR
def test_a_follower_and_a_group(log: Log) -> None:
    for batch in range(3):
        commit(log, batch)
    batches = log.read("t", [0], follow=True, timeline="current", columns=["value"])
    assert next(batches).num_rows == 3
    log.reset("q", 0)
    commit(log, 1, "b")
    assert next(batches).column("value").to_pylist() == [b"q 1b"]
    log.reset("q", 0)  # all that follows
    assert values(log, group="g") == ["q 0"]
    assert log.readers()["lag"].to_pylist() == [0]
    assert values(log, group="g") == []


def test_it_survives_snapshots_and_an_expired_ledger(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / "log"
    with sparklog.open(path, "rw", clock=clock) as log:
        log.create_topic("t", 2)
        for batch in range(4):
            commit(log, batch)
        log.reset("q", 1)
        commit(log, 2, "b")
        with commits_of(log).exclusive():
            commits_of(log).write_snapshot()
        first = commits_of(log).ledger.end - 1
        with commits_of(log).exclusive():
            commits_of(log).ledger.log.delete_records(first)
        wanted = ["q 0", "q 1", "q 2b"]
        assert values(log) == wanted
        for name in (path / "__sparklog_commits-0").iterdir():
            if name.name[:20].isdecimal() and int(name.name[:20]) < first:
                name.unlink()
        assert values(sparklog.open(path)) == wanted
        log.delete_records("t", {0: 3})
        assert commits_of(log).state.abandoned == {("t", 0): [(3, 4)], ("t", 1): [(2, 4)]}
        log.delete_records("t", {0: 5})
        assert commits_of(log).state.abandoned == {("t", 1): [(2, 4)]}
        log.delete_topic("t")
        assert commits_of(log).state.abandoned == {}


def older(record: LedgerRecord) -> LedgerRecord:
    """A record as sparklogs wrote it that kept no spans of resets."""
    if isinstance(record, ResetRecord | SnapshotRecord):
        return replace(record, abandoned=None)
    return record


@pytest.fixture
def by_an_older_one(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    append, snapshot = LedgerWriter.append, LogState.snapshot
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LedgerWriter, "append", lambda self, r, **k: append(self, older(r), **k))
        patch.setattr(LogState, "snapshot", lambda self: older(snapshot(self)))
        yield patch


@IN_LOG_DIR
def test_resets_of_an_older_sparklog(log: Log, by_an_older_one: pytest.MonkeyPatch) -> None:
    for batch in range(4):
        commit(log, batch)
    with commits_of(log).exclusive():
        commits_of(log).write_snapshot()
    log.reset("q", 1)
    for batch in (2, 3):
        commit(log, batch, "b")
    log.reset("q", 2)
    commit(log, 3, "c")
    wanted = ["q 0", "q 1", "q 2b", "q 3c"]
    assert values(log) == wanted
    by_an_older_one.undo()
    assert values(sparklog.open(log.path)) == wanted
    with sparklog.open(log.path, "rw") as again:  # the next snapshot has it
        assert commits_of(again).state.abandoned is None
        again.reset("q", 2)
        commit(again, 3, "d")
        with commits_of(again).exclusive():
            commits_of(again).write_snapshot()
        assert commits_of(again).state.abandoned is not None
        assert values(again) == ["q 0", "q 1", "q 2b", "q 3d"]
        assert verify(log.path).ok


@IN_LOG_DIR
def test_batches_whose_records_have_expired_are_told(
    log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    for batch in range(3):
        commit(log, batch)
    with commits_of(log).exclusive():
        commits_of(log).write_snapshot()
    commit(log, 3)
    with commits_of(log).exclusive():
        commits_of(log).ledger.log.delete_records(3)
    home = Path(log.path) / "__sparklog_commits-0"
    for name in home.glob("00000000000000000000.*"):
        name.unlink()
    log.reset("q", 1)
    assert "no longer has all commits of q after batch 1" in caplog.text
    assert values(log) == ["q 0", "q 1", "q 2"]


@IN_LOG_DIR
def test_a_fork_leaves_out_the_same(log: Log, tmp_path: Path) -> None:
    for batch in range(3):
        commit(log, batch)
    log.reset("q", 0)
    commit(log, 1, "b")
    fork(log.path, tmp_path / "fork", writer="q", batch=1)
    with sparklog.open(tmp_path / "fork", "rw") as made:
        assert values(made) == ["q 0", "q 1b"]
        assert commits_of(made).state.abandoned == {("t", p): [(1, 3)] for p in (0, 1)}


@pytest.mark.parametrize("seed", range(8))
@IN_LOG_DIR
def test_it_equals_what_is_still_committed(log: Log, seed: int) -> None:
    """Against a model: the newest commit of each batch up to where its writer stands."""
    rng = random.Random(seed)
    at = dict.fromkeys("abc", -1)
    held: dict[str, dict[int, str]] = {w: {} for w in at}
    for n in range(40):
        writer = rng.choice("abc")
        if rng.random() < 0.2:
            at[writer] = rng.randint(-1, max(at[writer], 0))
            log.reset(writer, at[writer])
            held[writer] = {b: v for b, v in held[writer].items() if b <= at[writer]}
        else:
            at[writer] += rng.choice((1, 1, 3))
            commit(log, at[writer], f"/{n}", writer)
            held[writer][at[writer]] = f"{writer} {at[writer]}/{n}"
        if rng.random() < 0.1:
            with commits_of(log).exclusive():
                commits_of(log).write_snapshot()
        if rng.random() < 0.2:
            wanted = [v for by in held.values() for v in by.values()]
            assert sorted(values(log)) == sorted(wanted)
    wanted = sorted(v for by in held.values() for v in by.values())
    assert sorted(values(log)) == wanted
    assert sorted(values(sparklog.open(log.path), 1)) == wanted


def test_wrong_use(log: Log, log_path: str) -> None:
    with pytest.raises(InvalidRequestError, match="timeline='now': expected one of all, current"):
        log.read("t", timeline="now")
    assert json.dumps(timeline_of(home_of(log), "all")) == "null"


def test_the_readers_of_one_topic_are_the_rows_of_all(log: Log) -> None:
    for name in ("one", "two"):
        log.create_topic(name, 2)
        log.append(name, pa.table({"value": ["a", "b"]}), partition=1)
        log.commit_offsets(f"g-{name}", {name: {1: 1}} | {"one": {0: 0}})
    log.delete_topic("two")
    whole = log.readers().to_pylist()
    for name in ("one", "two", "nobody's"):
        rows = [row for row in whole if row["topic"] == name]
        assert log.readers(name).to_pylist() == rows
    assert len(log.readers("one")) == 2
    assert log.readers("two")["lag"].to_pylist() == [None]
