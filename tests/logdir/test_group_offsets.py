"""Registered readers: what is kept, who sees it, what retention must leave alone."""

import dataclasses
import json
import logging
import multiprocessing
import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog import Log
from sparklog.clock import ManualClock
from sparklog.errors import (
    DataCorruptionError,
    LogLockedError,
    StorageUnavailableError,
    UnsupportedVersionError,
)
from sparklog.fs import LOCAL, FileSystem
from sparklog.log.group_lag import retention_floor, retention_floors
from sparklog.log.log import view_of
from sparklog.logdir import group_offsets
from sparklog.logdir.group_offsets import READERS_PREFIX, GroupFiles, group_path
from sparklog.logdir.home import commits_of
from sparklog.storage.commit_rate import CommitRate, RatePoint
from sparklog.storage.group_store import Groups
from sparklog.storage.groups import Committed, Reader
from sparklog.testing.groups_contract import offsets_of

WEEK_MS = 7 * 24 * 3_600_000
CONFIG = {"retention.ms": "-1", "retention.respect.readers": "true"}


@pytest.fixture
def log(tmp_path: Path, clock: ManualClock) -> Iterator[Log]:
    """Topic t: two partitions of 100 records, in ten commits; topic u doesn't respect readers."""
    with sparklog.open(tmp_path / "log", "rw", clock=clock) as log:
        log.create_topic("t", 2, CONFIG)
        log.create_topic("u")
        for n in range(10):
            for p in (0, 1):
                log.append("t", pa.table({"value": [f"{n * 10 + i}" for i in range(10)]}), p)
        log.append("u", pa.table({"value": ["x"]}))
        yield log


def groups_in(home: str | Path) -> Groups:
    return Groups(GroupFiles(LOCAL, str(home)))


def floors(log: Log, clock: ManualClock) -> dict[tuple[str, int], int]:
    commits = commits_of(log)
    found = groups_in(commits.home).readers()
    with commits.exclusive():
        return retention_floors(commits.state, found, now_ms=clock(), retention_ms=WEEK_MS)


def committed(log: Log, group: str) -> dict[int, int]:
    found = offsets_of(groups_in(view_of(log).home), group)
    return {p: offset for (_, p), offset in found.items()}


# --- reading as a group ------------------------------------------------------------------------


def test_following_commits_while_there_is_nothing_new(
    log: Log, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[dict[int, int]] = []

    def wait(_: float) -> None:
        waits.append(committed(log, "g"))
        log.append("t", pa.table({"value": ["later"]}), 0)

    monkeypatch.setattr("sparklog.log.arrow_reads.pause", wait)
    reader = log.read("t", [0], follow=True, group="g", columns=["value"])
    assert reader.read_next_batch().num_rows == 100
    assert reader.read_next_batch().num_rows == 1
    assert reader.read_next_batch().num_rows == 1
    assert waits == [{0: 100}, {0: 101}]  # no second passed by this clock


@pytest.mark.parametrize("at", ["begin", "later"])
def test_where_nothing_can_be_written(
    log: Log, at: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(fs: FileSystem, path: str, **_: object) -> None:
        raise StorageUnavailableError(f"can't open {path}: Read-only file system")

    later = log.read("t", group="g") if at == "later" else None
    monkeypatch.setattr(type(LOCAL), "open_lock", refuse)
    if later is None:
        with pytest.raises(StorageUnavailableError, match=r"g can't be stored in .*Read-only"):
            log.read("t", group="g")
        return
    with caplog.at_level(logging.WARNING, "sparklog"):
        assert later.read_all().num_rows == 200  # reads go on
    assert "group g can't be stored" in caplog.text
    assert committed(log, "g") == {0: 0, 1: 0}


# --- files and processes -----------------------------------------------------------------------


def _commit_many(home: str, partition: int, count: int) -> None:
    group_offsets.LOCK_TIMEOUT_MS = 240_000  # type: ignore[misc]  # in a process of its own
    for offset in range(1, count + 1):
        groups_in(home).commit("g", {("t", partition): offset}, now_ms=1, host="h")


def test_members_in_several_processes_lose_nothing_of_each_other(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    members = [context.Process(target=_commit_many, args=(str(tmp_path), p, 40)) for p in range(3)]
    for member in members:
        member.start()
    for member in members:
        member.join()
        assert member.exitcode == 0
    assert offsets_of(groups_in(tmp_path), "g") == {("t", p): 40 for p in range(3)}
    assert len(os.listdir(tmp_path)) == 1


def test_a_member_that_hangs_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_offsets, "LOCK_TIMEOUT_MS", 20)
    groups_in(tmp_path).commit("g", {("t", 0): 1}, now_ms=1, host="h")
    (name,) = os.listdir(tmp_path)
    with LOCAL.open_lock(str(tmp_path / name)) as held:
        assert held.try_lock(0, 0, exclusive=True)
        with pytest.raises(LogLockedError, match="another reader of its group"):
            groups_in(tmp_path).commit("g", {("t", 0): 2}, now_ms=1, host="h")
        groups_in(tmp_path).commit("h", {("t", 0): 2}, now_ms=1, host="h")  # others go on
    groups_in(tmp_path).commit("g", {("t", 0): 2}, now_ms=1, host="h")


def test_two_sources_of_a_micro_batch_keep_the_lower_offset(tmp_path: Path) -> None:
    home = str(tmp_path)
    for batch, offset in ((0, 5), (0, 9), (0, 3), (1, 8), (1, 12), (0, 2)):
        query = Reader("q", "query", batch=batch)
        groups_in(home).commit_query(query, {("t", 0): offset}, now_ms=1)
        found = offsets_of(groups_in(home), "q")["t", 0]
        assert found == {5: 5, 9: 5, 3: 3, 8: 8, 12: 8, 2: 2}[offset]


def file_of(log: Log) -> Path:
    (path,) = (p for p in Path(log.path).iterdir() if p.name.startswith(READERS_PREFIX))
    return path


DAMAGE = {
    "a bit": lambda raw: raw.replace(b'"g"', b'"h"'),
    "an offset": lambda raw: raw.replace(b"30", b"90"),
    "cut": lambda raw: raw[:-20],
    "zeros": lambda raw: bytes(len(raw)),
    "a newer version": lambda raw: raw.replace(b'"version": 1', b'"version": 2'),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_file_holds_all_back_until_its_reader_commits(
    log: Log, clock: ManualClock, how: str
) -> None:
    log.commit_offsets("fast", {"t": {0: 50, 1: 50}})
    log.commit_offsets("g", {"t": {0: 30}})
    assert floors(log, clock) == {("t", 0): 30, ("t", 1): 50}
    path = Path(group_path(log.path, "g"))
    path.write_bytes(DAMAGE[how](path.read_bytes()))
    os.utime(path, (clock() / 1000, clock() / 1000))
    assert floors(log, clock) == {("t", 0): 0, ("t", 1): 0}
    assert set(log.readers()["kind"].to_pylist()) == {"group", "damaged"}
    if how == "a newer version":
        with pytest.raises(UnsupportedVersionError):
            log.commit_offsets("g", {"t": {0: 31}})
        return
    with pytest.raises(DataCorruptionError, match="the next commit of its reader rewrites it"):
        log.read("t", group="g")
    log.commit_offsets("g", {"t": {0: 31}})
    assert floors(log, clock) == {("t", 0): 31, ("t", 1): 50}


def test_a_file_that_was_only_just_made_says_nothing(log: Log, clock: ManualClock) -> None:
    Path(group_path(log.path, "g")).touch()
    assert floors(log, clock) == {}
    log.commit_offsets("g", {"t": {0: 1}})
    assert committed(log, "g") == {0: 1}


def test_the_file_is_for_people_too(log: Log) -> None:
    log.commit_offsets("g", {"t": {0: 30}})
    document = json.loads(file_of(log).read_text())
    assert document["reader"]["group"] == "g"
    assert document["reader"]["offsets"]["t"]["0"][0] == 30


# --- what retention must leave alone -----------------------------------------------------------


def test_the_slowest_reader_is_the_floor_where_the_topic_asks(log: Log, clock: ManualClock) -> None:
    assert floors(log, clock) == {}  # nobody registered
    log.commit_offsets("a", {"t": {0: 30, 1: 7}, "u": {0: 0}})
    log.commit_offsets("b", {"t": {0: 20}})
    assert floors(log, clock) == {("t", 0): 20, ("t", 1): 7}
    log.delete_records("t", {0: 25})
    assert floors(log, clock) == {("t", 0): 25, ("t", 1): 7}
    log.delete_reader("b")
    assert floors(log, clock) == {("t", 0): 30, ("t", 1): 7}
    log.alter_topic("t", config={"retention.respect.readers": False})
    assert floors(log, clock) == {}


def test_the_floor_never_lies_past_the_end(log: Log, clock: ManualClock) -> None:
    commits = commits_of(log)
    groups_in(commits.home).commit("g", {("t", 0): 10**9, ("gone", 0): 1}, now_ms=clock(), host="h")
    found = groups_in(commits.home).readers()
    ask = {"now_ms": clock(), "retention_ms": WEEK_MS}
    assert retention_floor(commits.state, "t", 0, found, **ask) == 100
    assert retention_floor(commits.state, "t", 1, found, **ask) is None
    assert retention_floor(commits.state, "gone", 0, found, **ask) is None
    assert retention_floor(commits.state, "u", 0, found, **ask) is None


def test_a_dead_reader_holds_for_a_week_and_no_longer(log: Log, clock: ManualClock) -> None:
    log.commit_offsets("dead", {"t": {0: 10}})
    clock.advance(WEEK_MS - 1)
    log.commit_offsets("alive", {"t": {0: 60}})
    ask = {"now_ms": clock(), "retention_ms": WEEK_MS}
    assert floors(log, clock) == {("t", 0): 10}
    assert groups_in(log.path).expire(**ask) == []
    clock.advance(1)
    ask["now_ms"] = clock()
    assert floors(log, clock) == {("t", 0): 60}
    expired = {r["group"]: r["expired"] for r in log.readers().to_pylist()}
    assert expired == {"dead": True, "alive": False}
    (would,) = groups_in(log.path).expire(**ask, dry_run=True)
    assert committed(log, "dead") == {0: 10}
    assert groups_in(log.path).expire(**ask) == [would]
    assert (would.group, would.topic, would.partition, would.offset) == ("dead", "t", 0, 10)
    assert would.time_ms == clock() - WEEK_MS
    assert log.readers()["group"].to_pylist() == ["alive"]


def test_a_readers_fields_survive_the_file(log: Log, clock: ManualClock) -> None:
    offsets = {("t", 0): 4, ("t", 1): 5}
    groups_in(log.path).commit_query(Reader("q", "query", "h", "a", 3), offsets, now_ms=7)
    (found,) = groups_in(log.path).readers().groups
    wanted = Reader(
        "q", "query", "h", "a", 3, {k: Committed(o, 7) for k, o in offsets.items()}
    )
    assert found.commit_rate == CommitRate(7, 0, (RatePoint(7, 2, 9),))
    plain = dataclasses.replace(found, commit_rate=None)
    assert dataclasses.asdict(plain) == dataclasses.asdict(wanted)
