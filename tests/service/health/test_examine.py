"""What `examine` says of logs to which the world has done something."""

import json
import os
import shlex
import shutil
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sparklog
from sparklog.cli.app import run
from sparklog.clock import ManualClock
from sparklog.common import TopicPartition
from sparklog.errors import StorageUnavailableError
from sparklog.fs import LOCAL, LocalFileSystem, Volume
from sparklog.log.commit import Identity, QueryIdentity
from sparklog.log.log import home_of
from sparklog.logdir import lease as log_dir_lease
from sparklog.logdir.home import commits_of
from sparklog.logdir.ledger import LedgerWriter
from sparklog.logdir.lock import State
from sparklog.service import Service, erase, verify
from sparklog.service.health import Check, Health, Level, Limits, examine
from sparklog.service.health.examiner import Examiner, call_with_timeout
from sparklog.storage.groups import Reader
from sparklog.storage.query_origin import QueryOrigin
from sparklog.storage.staging import Framing
from sparklog.tiered.object_store.object_store import ObjectStore
from sparklog.tiered.target import open_store
from tests.service.logs import flip
from tests.service.test_service import stepped

MINUTE = 60_000
T0 = 1_790_000_000_000
KEPT = {"retention.ms": -1}


def rows(count: int, size: int = 100) -> pa.Table:
    return pa.table({"value": ["x" * size] * count})


def levels(found: Health) -> dict[str, str]:
    """Those that aren't green."""
    return {check.name: str(check.level) for check in found.wrong}


def what(found: Health, name: str) -> str:
    check = found.check(name)
    assert check is not None, found
    return check.what


def main_of(command: str) -> int:
    """Run a command that was told to help; returns its exit code."""
    name, *arguments = shlex.split(command)
    assert name == "sparklog"
    return run(arguments)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(T0)


def traffic(
    log: sparklog.Log,
    clock: ManualClock,
    minutes: int,
    *,
    write: int = 20,
    read: int = 0,
    writer: str = "",
    query: str = "",
    first: int = 0,
) -> None:
    """Every minute `write` records come, and `read` are read by the group g."""
    at = log.readers().to_pylist()
    offset = at[0]["offset"] if at else 0
    for n in range(minutes):
        clock.advance(MINUTE)
        if write and writer:
            stager = log.stager(Framing())
            for batch in rows(write).to_batches():
                stager.add(log.topic("t"), batch, partition=0)
            number = first + n
            identity = Identity(writer=writer, batch=number, fingerprint=f"{number}")
            if query:
                origin = QueryOrigin(name=query)
                identity = QueryIdentity(**asdict(identity), origin=origin)
            log.commit(stager.finish(), identity=identity)
        elif write:
            log.append("t", rows(write))
        if read:
            offset = min(offset + read, log.offsets("t")[0][1])
            log.commit_offsets("g", {"t": {0: offset}})


# --- readers and writers ------------------------------------------------------------------------


def test_a_reader_that_keeps_up_falls_behind_catches_up_and_stops(
    path: str, clock: ManualClock
) -> None:
    with sparklog.open(path, "rw", clock=clock) as log:
        log.create_topic("t", config=KEPT)
        traffic(log, clock, 15, read=20)
        found = examine(path, clock=clock)
        assert levels(found) == {}
        assert what(found, "readers") == "1 reader, none is behind"
        traffic(log, clock, 60, read=10)
        found = examine(path, clock=clock)
        assert levels(found) == {"readers": "amber"}
        assert what(found, "readers") == (
            "g is 600 records behind (30 min) and falls behind: 0.3/s come, it reads 0.2/s"
        )
        check = found.check("readers")
        assert check is not None
        assert check.command == f"sparklog readers show {path} --group g"
        traffic(log, clock, 12, read=60)  # three times what comes
        found = examine(path, clock=clock)
        assert levels(found) == {}
        assert "and has caught up in" in what(found, "readers")
        traffic(log, clock, 20)
        found = examine(path, clock=clock)
        assert levels(found) == {"readers": "amber"}
        assert what(found, "readers").endswith("and has committed nothing for 20 min")
        traffic(log, clock, 120)
        found = examine(path, clock=clock)
        assert levels(found) == {}, "it has been silent for longer than it was at work"
        assert "seems to have ended" in what(found, "readers")


def test_a_batch_reader_that_ended_is_not_waited_for(path: str, clock: ManualClock) -> None:
    with sparklog.open(path, "rw", clock=clock) as log:
        log.create_topic("t", config=KEPT)
        traffic(log, clock, 10)
        for offset in range(0, 200, 50):
            log.commit_offsets("nightly", {"t": {0: offset}})
            clock.advance(15_000)
        for _ in range(8):
            traffic(log, clock, 5)
            assert levels(examine(path, clock=clock)) == {}


@pytest.mark.parametrize(("worked", "silent", "level"), [
    (120, 5, "green"), (120, 30, "amber"), (120, 130, "green"), (3, 15, "green"),
])  # fmt: skip
def test_a_writer_that_stops(
    path: str, clock: ManualClock, worked: int, silent: int, level: str
) -> None:
    """Amber by its own rhythm; not one that ran for minutes, nor for ever."""
    with sparklog.open(path, "rw", clock=clock) as log:
        log.create_topic("t", config=KEPT)
        traffic(log, clock, worked, writer="query/sink")
        clock.advance(silent * MINUTE)
        found = examine(path, clock=clock)
        assert levels(found) == ({} if level == "green" else {"writers": level})
        assert "query/sink" in what(found, "writers")


@pytest.mark.parametrize("home", ["log dir", "store"])
def test_queries_have_their_names(path: str, tmp_path: Path, clock: ManualClock, home: str) -> None:
    """Beside the ids, which the suggested commands take."""
    where = path if home == "log dir" else f"file://{tmp_path}/home"
    with sparklog.open(where, "rw", clock=clock) as log:
        log.create_topic("t", config=KEPT)
        traffic(log, clock, 120, writer="id/sink", query="tidy orders")
        query = Reader("id", "query", "h", "app", batch=0, run="r", name="tidy orders")
        home_of(log).groups.commit_query(query, {TopicPartition("t", 0): 5}, now_ms=clock())
        found = examine(where, clock=clock)
        assert "micro-batch 119 of tidy orders (id/sink)" in what(found, "writers")
        clock.advance(30 * MINUTE)
        found = examine(where, clock=clock)
    assert what(found, "readers").startswith("tidy orders (id) is 2,395 records behind")
    assert what(found, "writers").startswith("writer tidy orders (id/sink) has committed nothing")
    check = found.check("writers")
    assert check is not None
    assert check.command == f"sparklog commits {where} --writer id/sink --last 5"


def test_a_commit_from_the_future(path: str, clock: ManualClock) -> None:
    ahead = ManualClock(clock() + 120 * MINUTE)
    with sparklog.open(path, "rw", clock=ahead) as log:
        log.create_topic("t", config=KEPT)
        log.append("t", rows(1))
        log.commit_offsets("g", {"t": {0: 0}})
    found = examine(path, clock=clock)
    assert levels(found) == {"writers": "amber"}
    assert "2 h ahead of this host's clock" in what(found, "writers")


def test_readers_that_stand_where_no_record_is(path: str, clock: ManualClock) -> None:
    old = f"{path}-old"
    with sparklog.open(path, "rw", clock=clock) as log:
        log.create_topic("t", config=KEPT)
        log.append("t", rows(10))
        log.commit_offsets("g", {"t": {0: 5}})
        log.delete_records("t", {0: 7})
        found = examine(path, clock=clock)
        expected = "g is before the log start of t-0: unread records were deleted"
        assert what(found, "readers") == expected
        log.commit_offsets("g", {"t": {0: 10}})
    shutil.copytree(path, old)
    with sparklog.open(path, "rw", clock=clock) as log:
        log.append("t", rows(10))
        log.commit_offsets("g", {"t": {0: 20}})
    for name in os.listdir(path):
        if name.startswith("sparklog.readers-"):
            shutil.copy(f"{path}/{name}", f"{old}/{name}")
            (Path(path) / name).write_bytes(b"no document")
    found = examine(old, clock=clock)
    assert what(found, "readers") == "g is past the end of t-0: was the log restored?"
    command = next(check.command for check in found.wrong)
    assert command == f"sparklog readers reset {old} --group g --all-topics --to-latest --dry-run"
    assert main_of(command) == 0
    assert what(examine(path, clock=clock), "readers") == "1 file of readers can't be read"


# --- places -------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [
    lambda path: None,
    lambda path: path.mkdir(),
    lambda path: path.write_text("a file"),
], ids=["gone", "empty", "a file"])  # fmt: skip
def test_where_no_log_is(tmp_path: Path, make: Callable[[Path], object]) -> None:
    make(tmp_path / "log")
    found = examine(tmp_path / "log")
    assert (found.kind, levels(found)) == ("nothing", {"writable": "red"})
    quick = verify(tmp_path / "log", quick=True)
    assert not quick.ok
    assert examine(f"file://{tmp_path}/log").level is Level.RED


def test_disks(path: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    with sparklog.open(path, "rw", clock=clock) as log:
        log.create_topic("t", config=KEPT)
        traffic(log, clock, 60)
    size = sum(f.stat().st_size for f in Path(path, "t-0").glob("*.log"))
    day = 24 * size  # an hour's bytes a day long
    for free, level in ((40 * day, {}), (5 * day, "amber"), (day // 2, "red")):
        monkeypatch.setattr(type(LOCAL), "free_bytes", lambda self, path, f=free: f)
        monkeypatch.setattr(type(LOCAL), "volume", lambda self, path: Volume(0, is_read_only=False))
        limits = Limits(disk_free_bytes=0)
        found = examine(path, clock=clock, limits=limits)
        if free < 4 << 20:
            assert "writable" in levels(found)
        assert levels(found).get("disk", {}) == level, found
    with sparklog.open(path, "rw", clock=clock) as log:
        monkeypatch.undo()
        log.alter_topic("t", config={"retention.ms": 30 * MINUTE, "segment.ms": 10 * MINUTE})
    monkeypatch.setattr(type(LOCAL), "free_bytes", lambda self, path: 5 * day)
    found = examine(path, clock=clock, limits=limits)
    assert "disk" not in levels(found), "retention gives back what comes"
    monkeypatch.setattr(type(LOCAL), "volume", lambda self, path: Volume(0, is_read_only=True))
    assert levels(examine(path, clock=clock))["writable"] == "red"


@pytest.mark.parametrize("name", ["", "sparklog.lock"])
def test_a_user_who_may_only_read(
    path: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Whether it can be written such a user can't tell: neither yes nor no is said."""
    place = os.path.join(path, name) if name else path
    with sparklog.open(path, "rw", clock=clock) as log:
        log.create_topic("t")
    monkeypatch.setattr(type(LOCAL), "may_write", lambda self, path: path != place)
    check = examine(path, clock=clock).check("writable")
    assert check is not None
    assert (check.level, check.what) == (
        Level.GREEN,
        f"this user (uid {os.geteuid()}) may only read {place}; nothing seen that would stop its "
        "writers",
    )
    monkeypatch.setattr(type(LOCAL), "volume", lambda self, path: Volume(0, is_read_only=True))
    check = examine(path, clock=clock).check("writable")
    assert check is not None
    assert (check.level, check.what) == (
        Level.RED, f"it can't be written: {path} is mounted read-only"
    )  # fmt: skip


def test_an_import_is_red_for_an_hour_not_for_a_day(
    path: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def disk() -> Check:
        with monkeypatch.context() as patch:
            patch.setattr(type(LOCAL), "free_bytes", lambda self, path: 6 * size)
            check = examine(path, clock=clock, limits=Limits(disk_free_bytes=0)).check("disk")
        assert check is not None
        return check

    with sparklog.open(path, "rw", clock=clock) as log:
        log.create_topic("t", config=KEPT)
        traffic(log, clock, 60)
        size = sum(f.stat().st_size for f in Path(path, "t-0").glob("*.log"))
        assert disk().level is Level.RED
        clock.advance(90 * MINUTE)
        log.append("t", rows(1))
    assert disk().level is Level.AMBER, "the mean of the day alone still says so"
    assert "; in the last hour " in disk().what


def test_a_damaged_ledger_is_red(path: str, clock: ManualClock) -> None:
    with sparklog.open(path, "rw", clock=clock) as log:
        log.create_topic("t")
        log.append("t", rows(10))
    (segment,) = Path(path, "__sparklog_commits-0").glob("*.log")
    flip(segment, 200)
    found = examine(path, clock=clock)
    assert levels(found) == {"writable": "red", "partitions": "red"}
    assert [check.name for check in found.checks][-1] == "service", "nothing is made up"


def test_damaged_history_of_the_ledger_is_amber_until_it_is_repaired(
    path: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reads and appends need the newest segment alone."""
    monkeypatch.setattr(LedgerWriter, "segment_bytes", 1000)
    with sparklog.open(path, "rw", clock=clock) as log:
        log.create_topic("t")
        for _ in range(6):
            log.append("t", rows(10))
    *_, older, _newest = sorted(Path(path, "__sparklog_commits-0").glob("*.log"))
    flip(older, older.stat().st_size - 20)
    examiner = Examiner(path, clock=clock)
    for _ in range(2):
        found = examiner.examine()
        assert levels(found) == {"partitions": "amber"}
        assert "Reads and appends work" in what(found, "partitions")
    with sparklog.open(path, "rw", clock=clock) as log:
        log.append("t", rows(10))
    assert levels(examiner.examine()) == {"partitions": "amber"}
    verify(path, repair=True, clock=clock)
    assert levels(examiner.examine()) == {}


def test_a_lost_log_dir_and_the_command_that_helps(tmp_path: Path, clock: ManualClock) -> None:
    dirs = f"{tmp_path}/one,{tmp_path}/two"
    with sparklog.open(dirs, "rw", clock=clock) as log:
        log.create_topic("t", 2)
    shutil.rmtree(tmp_path / "two")
    found = examine(dirs, clock=clock)
    assert levels(found) == {"writable": "red", "partitions": "red"}
    check = found.check("partitions")
    assert check is not None
    assert check.what.startswith("1 partition (t-1) offline: the log dir does not exist")
    assert check.command == shlex.join(["sparklog", "verify", dirs, "--give-up", "--dry-run"])
    (only,) = (c for c in examine(str(tmp_path / "one")).checks if c.name == "partitions")
    assert "which the path doesn't name" in only.what


def test_a_log_dir_that_was_never_there(path: str, clock: ManualClock) -> None:
    with sparklog.open(path, "rw", clock=clock) as log:
        log.create_topic("t")
    check = examine(f"{path},{path}2", clock=clock).check("writable")
    assert check is not None
    why = "it does not exist: is its disk mounted?"
    assert check.what == f"it can't be written: log dir {path}2 is offline: {why}"


def test_a_writer_that_stands_still_with_the_lock(path: str, clock: ManualClock) -> None:
    """As one that was stopped (SIGSTOP) amid a commit; a dead one gives the lock back."""
    lock = Path(path, "sparklog.lock")
    with sparklog.open(path, "rw", clock=clock) as log:
        log.create_topic("t")
        commits = commits_of(log)
        with commits.exclusive():
            commits.manager.write_page(State.BUSY, None)
            os.utime(lock, (T0 / 1000 - 30, T0 / 1000 - 30))
            assert levels(examine(path, clock=clock)) == {}, "that may be a large commit"
            os.utime(lock, (T0 / 1000 - 90, T0 / 1000 - 90))
            found = examine(path, clock=clock)
            assert levels(found) == {"writable": "red"}
            assert f"process {os.getpid()} has held the write lock for 1.5 min" in found.verdict
            commits.manager.idle()
            os.utime(lock, (T0 / 1000 - 90, T0 / 1000 - 90))
            assert levels(examine(path, clock=clock)) == {}, "nothing is under way"
        commits.manager.write_page(State.BUSY, None)
        os.utime(lock, (T0 / 1000 - 90, T0 / 1000 - 90))
        assert levels(examine(path, clock=clock)) == {}, "whoever it was has let go"
        commits.manager.idle()


# --- the background work ------------------------------------------------------------------------


@pytest.mark.parametrize("home", ["log", "file://{}/store"])
def test_a_first_deletion_is_told_before_a_service_runs(
    tmp_path: Path, clock: ManualClock, home: str
) -> None:
    """And the command that the verdict names keeps the records."""
    path = home.format(tmp_path) if "{" in home else str(tmp_path / home)
    old = pa.array([T0 - 400 * 24 * 60 * MINUTE] * 10, pa.timestamp("ms"))
    with sparklog.open(path, "rw", clock=clock) as log:
        for name, kept_ms in {"old": 3_600_000, "new": 3_600_000, "kept": -1}.items():
            log.create_topic(name, config={"retention.ms": kept_ms, "segment.idle.ms": -1})
        for topic in ("old", "kept"):
            log.append(topic, rows(10).append_column("timestamp", old))
        log.append("new", rows(10))
    found = examine(path, clock=clock)
    assert levels(found)["retention"] == "amber"
    assert "(100%) of topic old" in what(found, "retention")
    assert "for the first time" in what(found, "retention")
    (check,) = [one for one in found.checks if one.name == "retention"]
    assert check.command is not None
    assert run(shlex.split(check.command)[1:]) == 0
    assert found.check("retention") and examine(path, clock=clock).check("retention") is None
    with stepped(Service(path, clock=clock)) as service:
        for _ in range(3):
            assert not service.run_once().deleted
    with sparklog.open(path, clock=clock) as log:
        assert log.read("old").read_all().num_rows == 10


def test_a_deletion_that_is_not_the_first_is_not_told(path: str, clock: ManualClock) -> None:
    old = pa.array([T0 - 400 * 24 * 60 * MINUTE] * 10, pa.timestamp("ms"))
    with sparklog.open(path, "rw", clock=clock) as log:
        log.create_topic("old", config={"retention.ms": 3_600_000})
        log.append("old", rows(10).append_column("timestamp", old))
        for _ in range(2):
            Service(path, clock=clock).run_once()
        assert log.offsets("old") == {0: (10, 10)}
        log.append("old", rows(10).append_column("timestamp", old))
    found = examine(path, clock=clock)
    assert found.check("retention") is None
    assert "retention should have deleted" in what(found, "service")


def test_work_without_a_service(path: str, clock: ManualClock) -> None:
    small = {"internal.segment.bytes": 2000}
    with sparklog.open(path, "rw", clock=clock) as log:
        log.create_topic("t", config={"retention.bytes": 2000} | small)
        log.create_topic("c", config={"cleanup.policy": "compact"} | small)
        for n in range(6):
            log.append("t", rows(10))
            log.append("c", pa.table({"key": ["k"] * 10, "value": [f"{n}" * 100] * 10}))
    found = examine(path, clock=clock)
    assert levels(found) == {"service": "amber", "retention": "amber"}
    assert "retention should have deleted" in what(found, "service")
    assert "1 partition should be compacted" in what(found, "service")
    assert "1 of 1 compacted partition wants cleaning" in what(found, "cleaner")
    with stepped(Service(path, clock=clock)) as service:
        service.run_once()
        clock.advance(MINUTE)
        service.run_once()
        found = examine(path, clock=clock)
        assert levels(found) == {}
        assert what(found, "cleaner") == "1 compacted partition, none is due for cleaning"
        assert f"led by process {os.getpid()} on " in what(found, "service")
        clock.advance(10 * MINUTE)
        found = examine(path, clock=clock)
        assert levels(found) == {"service": "amber"}
        assert "gives no sign of life for" in what(found, "service")
    assert what(examine(path, clock=clock), "service").startswith("no service runs (the last one")


def test_the_sign_of_life(path: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    with sparklog.open(path, "rw", clock=clock) as log:
        lease = home_of(log).service_lease()
        assert lease.acquire()
        raw = Path(path, log_dir_lease.NAME).read_bytes()
        clock.advance(25_000)
        monkeypatch.setattr(log_dir_lease, "BEAT_MS", 3_600_000)
        lease.heartbeat()  # no time has passed by the monotonic clock
        assert Path(path, log_dir_lease.NAME).read_bytes() == raw
        monkeypatch.setattr(log_dir_lease, "BEAT_MS", 0)
        lease.heartbeat()
        said = json.loads(Path(path, log_dir_lease.NAME).read_bytes())
        assert said["beat_ms"] - said["since_ms"] == 25_000
        lease.check()
        lease.release()
        lease.heartbeat()  # somebody else's by now


def raising(error: Exception) -> bytes:
    raise error


def test_a_tier_that_does_not_answer(
    tmp_path: Path, path: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sparklog.open(path, "rw", clock=clock) as log:
        config = {"remote.storage.enable": True, "internal.segment.bytes": 2000} | KEPT
        log.create_topic("t", config=config)
        for _ in range(4):
            log.append("t", rows(10))
    found = examine(path, clock=clock)
    assert "wait for a copy" in what(found, "service")
    Service(path, remote=f"file://{tmp_path}/bucket", clock=clock).run_once()
    assert what(examine(path, clock=clock), "tier").startswith("all closed segments have a copy")
    archive = examine(tmp_path / "bucket")
    assert (archive.kind, archive.level) == ("archive", Level.GREEN)
    assert what(archive, "partitions") == "1 partition, none offline"
    (tmp_path / "bucket").rename(tmp_path / "elsewhere")
    found = examine(path, clock=clock)
    assert levels(found) == {"tier": "amber"}
    nobody = StorageUnavailableError("unsigned")
    nobody.__cause__ = PermissionError(13, "who are you")
    nobody.__cause__.status = 403  # type: ignore[attr-defined]
    monkeypatch.setattr(ObjectStore, "get", lambda self, name: raising(nobody))
    (tmp_path / "elsewhere").rename(tmp_path / "bucket")
    assert levels(examine(path, clock=clock)) == {}, "who only looks may have no credentials"
    given = {"key": "k"}
    assert levels(examine(path, clock=clock, storage_options=given)) == {"tier": "amber"}
    assert "can't be reached from here" in what(found, "tier")


def test_loading_a_tiers_library_is_no_silence_of_its_store(
    tmp_path: Path, path: str, clock: ManualClock
) -> None:
    with sparklog.open(path, "rw", clock=clock) as log:
        log.create_topic("t", config={"remote.storage.enable": True})
    (tmp_path / "bucket").mkdir()
    Service(path, remote=f"file://{tmp_path}/bucket", clock=clock).run_once()
    opened: list[threading.Thread] = []

    def opening(url: str, given: Mapping[str, Any] | None) -> ObjectStore:
        opened.append(threading.current_thread())
        return open_store(url, given)

    assert levels(Examiner(path, clock=clock, opening=opening).examine()) == {}
    assert opened == [threading.current_thread()], "the store's time began before it was asked"


def test_no_wait_without_an_end() -> None:
    never = threading.Event()
    with pytest.raises(sparklog.StorageUnavailableError, match="it gave no answer within 50 ms"):
        call_with_timeout(never.wait, 50, "it")
    never.set()
    with pytest.raises(KeyError):
        call_with_timeout(lambda: {}[1], 240_000, "it")
    assert call_with_timeout(lambda: 7, 240_000, "it") == 7


# --- a log in a store, a broker's ---------------------------------------------------------------


def test_a_log_in_a_store(tmp_path: Path, clock: ManualClock) -> None:
    url = f"file://{tmp_path}/home"
    with sparklog.open(url, "rw", clock=clock) as log:
        log.create_topic("t", 2, config=KEPT)
        traffic(log, clock, 15, writer="q/s")
        log.commit_offsets("g", {"t": {0: 100}})
        assert levels(examine(url, clock=clock)) == {}
        clock.advance(12 * MINUTE)
        found = examine(url, clock=clock)
        assert levels(found) == {"writers": "amber"}
        assert "g is 200 records behind" in what(found, "readers")
        assert found.check("disk") is None
        clock.advance(120 * MINUTE)
        found = examine(url, clock=clock)
        assert "wait to be merged" in what(found, "service")
    with stepped(Service(url, clock=clock)) as service:
        service.run_once()
        assert levels(examine(url, clock=clock)) == {}
        clock.advance(5 * MINUTE)
        found = examine(url, clock=clock)
        assert "gives no sign of life for" in what(found, "service")
    assert what(examine(url, clock=clock), "service").startswith("no service runs (the last")


def test_a_store_whose_cleaner_is_late(tmp_path: Path, clock: ManualClock) -> None:
    url = f"file://{tmp_path}/home"
    with sparklog.open(url, "rw", clock=clock) as log:
        compacted = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.3}
        log.create_topic("t", config=compacted)
        log.create_topic("plain", config=KEPT)
        log.append("plain", rows(1))
        assert what(examine(url, clock=clock), "cleaner") == (
            "1 compacted partition, none is due for cleaning"
        )
        for name, minutes in (("merged", 120), ("again", 2)):
            for _ in range(3):
                log.append("t", pa.table({"key": ["a", "b"], "value": ["x" * 100] * 2}))
                clock.advance(MINUTE)
            found = examine(url, clock=clock)
            assert what(found, "cleaner").endswith("none is due for cleaning"), name  # pieces
            Service(
                url, options={"log.cleaner.enable": False, "diskless.merge.interval.ms": 60_000},
                clock=clock,
            ).run_once()  # fmt: skip
            clock.advance(minutes * MINUTE)
            found = examine(url, clock=clock)
            assert what(found, "cleaner").startswith("1 of 1 compacted partition wants cleaning (")
            waits = "t-0 for 2 h" if minutes > 60 else "t-0 for 2 min"
            assert what(found, "cleaner").endswith(waits)
            assert levels(found).get("cleaner", "green") == ("amber" if minutes > 60 else "green")
            assert "1 partition should be compacted" in what(found, "service")
            check = found.check("cleaner")
            assert check is not None
            command = f"sparklog serve {url} --once --task compact"
            assert check.command == (command if minutes > 60 else None)
            assert Service(url, clock=clock).compact().cleaned
            found = examine(url, clock=clock)
            assert what(found, "cleaner").endswith(", none is due for cleaning"), name


def test_a_brokers_directory(path: str, clock: ManualClock) -> None:
    with sparklog.open(path, "rw", clock=clock) as log:
        log.create_topic("t")
        log.append("t", rows(3))
    for name in os.listdir(path):
        if "sparklog" in name:
            gone = Path(path, name)
            shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
    found = examine(path, clock=clock)
    assert (found.kind, levels(found)) == ("broker", {})
    assert [check.name for check in found.checks] == ["writable", "partitions", "readers", "disk"]


# --- verify --quick -----------------------------------------------------------------------------


def test_a_quick_look_says_what_it_did_not_see(path: str, clock: ManualClock) -> None:
    with sparklog.open(path, "rw", clock=clock) as log:
        log.create_topic("t", config={"internal.segment.bytes": 2000} | KEPT)
        for _ in range(6):
            log.append("t", rows(10))
    quick, whole = verify(path, quick=True), verify(path)
    assert (quick.ok, quick.findings) == (True, [])
    assert (quick.partitions, quick.segments, quick.bytes) == (
        whole.partitions, whole.segments, whole.bytes
    )  # fmt: skip
    assert quick.unseen is not None
    assert f"`sparklog verify {path}`" in quick.unseen
    assert quick.to_dict()["health"]["level"] == "green"
    (Path(path) / "t-0" / f"{0:020d}.index").unlink()
    quick = verify(path, quick=True)
    assert [f.what for f in quick.findings] == ["the index is missing"]
    assert not quick.ok
    with pytest.raises(sparklog.InvalidRequestError, match="quick"):
        verify(path, True, quick=True)


def test_a_quick_look_leaves_deleted_topics_alone(path: str, clock: ManualClock) -> None:
    """What can be given back is no leftover: nobody is told to remove it."""
    with sparklog.open(path, "rw", clock=clock) as log:
        log.create_topic("t", config=KEPT)
        log.append("t", rows(3))
        log.delete_topic("t")
    assert verify(path, quick=True).findings == []
    with sparklog.open(path, "rw", clock=clock) as log:
        log.delete_topic("t", now=True)
    for directory in (f"t-0.{'a' * 32}-delete", f"t-0.{'a' * 32}-stray"):
        (Path(path) / directory).mkdir()
    (leftover, _) = verify(path, quick=True).findings
    assert leftover.severity == "leftover"


# --- what is offered helps ----------------------------------------------------------------------


def test_a_path_that_is_no_log_is_helped_by_what_fits(tmp_path: Path) -> None:
    def told(path: object) -> tuple[str, str | None]:
        (check,) = examine(str(path)).checks
        assert (check.name, check.level) == ("writable", Level.RED)
        return check.what, check.command

    (tmp_path / "file").write_text("x")
    assert told(tmp_path / "file") == (f"{tmp_path}/file is a file; name the log's directory", None)
    assert told(tmp_path / "gone")[1] == "df -h"
    assert told(tmp_path)[1] == "df -h"
    what, command = told("gopher://x/y")
    assert "correct the URL" in what
    assert command is None


def test_of_a_log_dir_that_is_away_the_disks_are_shown(path: str, clock: ManualClock) -> None:
    both = f"{path},{path}-2"
    with sparklog.open(both, "rw", clock=clock) as log:
        log.create_topic("t", 2)
    os.rename(f"{path}-2", f"{path}-3")
    check = examine(both, clock=clock).check("writable")
    assert check is not None
    assert (check.level, check.command) == (Level.RED, "df -h")


def test_a_reader_whose_topic_is_gone(path: str, clock: ManualClock) -> None:
    with sparklog.open(path, "rw", clock=clock) as log:
        log.create_topic("t")
        log.commit_offsets("g", {"t": {0: 0}})
        log.delete_topic("t")
    found = examine(path, clock=clock)
    assert levels(found) == {}
    expected = "1 reader, none is behind; the partitions of 1 reader (g) were deleted"
    assert what(found, "readers") == expected


class Shut(LocalFileSystem):
    """Another user's files, made with umask 077."""

    def open(self, path: str) -> Any:
        raise StorageUnavailableError(f"can't open {path}: Permission denied", path=path)


def test_files_that_this_user_may_not_read(path: str, clock: ManualClock) -> None:
    with sparklog.open(path, "rw", clock=clock) as log:
        log.create_topic("t")
        log.append("t", pa.table({"key": ["a"], "value": ["v"]}))
    erase(path, "t", [b"a"], clock=clock)
    found = examine(path, clock=clock, fs=Shut())
    assert found.level is Level.RED
    assert "Permission denied" in found.verdict
