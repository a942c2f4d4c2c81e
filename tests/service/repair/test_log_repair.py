"""Repairs beside others at work, refused ones, and ones that were cut at any point."""

import multiprocessing
import os
import shutil
import signal
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog.clock import ManualClock
from sparklog.logdir.cleaning.cleaner import clean_partition
from sparklog.logdir.home import commits_of
from sparklog.logdir.offset_checkpoints import HIGH_WATERMARK, LOG_START, RECOVERY_POINT
from sparklog.service import Finding, Service, Severity, verify
from sparklog.service.health import Level, examine
from sparklog.testing.faults import Fault as DiskFault
from sparklog.testing.faults import SimulatedKill
from tests import paths
from tests.crash.harness import ROOT, World, open_log, view_of
from tests.crash.test_corruption import small_world
from tests.service.logs import SMALL, T0, cut, fill, flip, kept, logs, make, records, table

GOLDEN = paths.GOLDEN / "kafka-4.1" / "logdir"
LEDGER = "__sparklog_commits-0"
BAD = (Severity.DAMAGE, Severity.DIFFERENCE)


def _harm(path: Path) -> None:
    """Faults of closed and active segments, and of the log as a whole."""
    for stem in ("00000000000000000024", "00000000000000000048"):
        (path / "t-0" / f"{stem}.index").unlink()
        cut(path / "t-0" / f"{stem}.timeindex", 0)
    (path / "t-0" / "00000000000000000036.snapshot").write_bytes(b"x")
    (path / "t-1" / "leader-epoch-checkpoint").write_text("x")
    (path / "t-1" / "partition.metadata").unlink()
    (path / "sparklog.watermarks").write_text("x")
    (path / "sparklog.topics").unlink()
    (path / LOG_START).write_text("x")
    (path / RECOVERY_POINT).write_text("x")


@pytest.mark.deep
def test_a_log_that_others_write_is_repaired_under_them(tmp_path: Path) -> None:
    """Their sessions open every file anew: what they write next is indexed, too."""
    path = tmp_path / "log"
    with make(path, close=False) as log:
        before = records(path)
        _harm(path)
        report = verify(path, repair=True)
        assert report.ok, str(report)
        assert report.situation == "open"
        assert records(path) == before
        fill(log, "t", 0, 20, first=30)
        assert _left(path) == []
        assert len(records(path)["t", 0]) == len(before["t", 0]) + 40
    assert _left(path) == []


@pytest.mark.parametrize("at", [1, -1], ids=["closed", "active"])
def test_status_reports_a_missing_segment_after_a_repair(tmp_path: Path, at: int) -> None:
    """Only the indexes show that the file is missing, so a repair leaves them in place."""
    path = tmp_path / "log"
    make(path)
    logs(path / "t-1")[at].unlink()
    assert examine(str(path)).level is Level.RED
    assert not verify(path, repair=True).ok
    assert examine(str(path)).level is Level.RED


@pytest.mark.parametrize("at", [0, 2], ids=["first", "middle"])
def test_a_missing_segment_of_a_compacted_log_is_damage(tmp_path: Path, at: int) -> None:
    """Offsets may be missing there; the indexes show that a file is."""
    path = tmp_path / "log"
    config = {"cleanup.policy": "compact", "internal.segment.bytes": 300, "retention.ms": -1}
    with sparklog.open(path, "rw") as log:
        log.create_topic("c", config={**config, "min.cleanable.dirty.ratio": "0.01"})
        for n in range(12):
            log.append("c", pa.table({"key": [f"k{n}"], "value": ["x" * 60]}))
    with Service(path) as service:
        service.run_once()
    assert verify(path).ok
    logs(path / "c-0")[at].unlink()
    for _ in range(2):
        report = verify(path, repair=True)
        assert [f.severity for f in report.findings if f.severity in BAD] == [Severity.DAMAGE]
        assert examine(str(path)).level is Level.RED


def test_a_repair_leaves_the_tail_of_a_foreign_segment(tmp_path: Path) -> None:
    """Reads fail at the tail; without it they would return the records that come before it."""
    path = tmp_path / "log"
    make(path)
    ledger, segment = logs(path / LEDGER)[0], logs(path / "t-0")[1]
    shutil.copy(ledger, segment)
    for _ in range(2):
        with sparklog.open(path) as log, pytest.raises(sparklog.DataCorruptionError):
            log.read("t", [0]).read_all()
        assert not verify(path, repair=True).ok


def _left(path: Path) -> list[Finding]:
    """What is still found but for the files that were set aside."""
    return [f for f in verify(path).findings if "set aside by a repair" not in f.what]


def test_a_log_left_by_a_crash_is_recovered_and_repaired(tmp_path: Path) -> None:
    with make(tmp_path / "live", close=False):
        path = Path(shutil.copytree(tmp_path / "live", tmp_path / "log"))
    before = records(path)
    _harm(path)
    (path / HIGH_WATERMARK).write_text("x")
    assert not verify(path).ok
    report = verify(path, repair=True)
    assert report.ok, str(report)
    assert report.done[0].startswith("recovered")
    assert verify(path).situation == "closed"
    assert records(path) == before


def test_a_crash_with_half_a_commit(tmp_path: Path) -> None:
    """What lies past the committed end is a leftover, and goes by recovery alone."""
    with make(tmp_path / "live", close=False):
        path = Path(shutil.copytree(tmp_path / "live", tmp_path / "log"))
    before = records(path)
    with logs(path / "t-0")[-1].open("ab") as file:
        file.write(logs(path / "t-0")[2].read_bytes()[:250])
    report = verify(path)
    assert report.ok, str(report)
    assert any("past the end 60" in f.what for f in report.findings)
    assert verify(path, repair=True).ok
    assert verify(path).findings == []
    assert records(path) == before


def test_a_repair_waits_for_nobody_who_holds_the_log(tmp_path: Path) -> None:
    """A lock that is held too long refuses the repair; the report is there all the same."""
    path = tmp_path / "log"
    with make(path, close=False) as log:
        (path / "t-0" / "00000000000000000024.index").unlink()
        commits = commits_of(log)
        assert commits is not None
        with commits.exclusive():
            report = verify(path, repair=True, options={"lock.timeout.ms": 50})
        assert not report.ok
        assert "has held the write lock" in str(report.refused)
        assert "not repaired" in str(report)
        assert verify(path, repair=True).ok


def test_a_running_broker_refuses_a_repair(tmp_path: Path) -> None:
    path = Path(shutil.copytree(GOLDEN, tmp_path / "log"))
    (path / ".kafka_cleanshutdown").unlink()
    (path / "txn-0" / "00000000000000000000.index").unlink()
    (path / ".lock").touch()
    started, stop = multiprocessing.Event(), multiprocessing.Event()
    broker = multiprocessing.Process(target=_hold, args=(path / ".lock", started, stop))
    broker.start()
    try:
        assert started.wait(240)
        before = kept(path)
        report = verify(path, repair=True)
        assert report.situation == "a running broker's"
        assert "a Kafka broker runs on this directory; stop it first" in str(report.refused)
        assert kept(path) == before
    finally:
        stop.set()
        broker.join()
    report = verify(path, repair=True)
    assert report.ok, str(report)
    assert report.situation == "a broker's, not stopped cleanly"


def _hold(path: Path, started: object, stop: object) -> None:
    """Lock as Java's FileChannel.lock() does."""
    import fcntl

    with path.open("r+") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        started.set()  # type: ignore[attr-defined]
        stop.wait(240)  # type: ignore[attr-defined]


def test_a_broker_that_did_not_stop(tmp_path: Path) -> None:
    """Preallocated indexes and a torn batch are what such a broker leaves."""
    path = Path(shutil.copytree(GOLDEN, tmp_path / "log"))
    (path / ".kafka_cleanshutdown").unlink()
    log = path / "plain.none-0" / "00000000000000000000.log"
    raw = log.read_bytes()
    log.write_bytes(raw + raw[:90])
    for suffix, size in (("index", 8000), ("timeindex", 12000)):
        with log.with_suffix(f".{suffix}").open("ab") as file:
            file.truncate(size)
    report = verify(path)
    assert report.ok, str(report)
    (finding,) = report.findings
    assert (finding.severity, finding.position) == (Severity.LEFTOVER, len(raw))


@pytest.mark.deep
def test_a_killed_writer_leaves_a_log_that_verifies(tmp_path: Path) -> None:
    path = tmp_path / "log"
    make(path)
    for _ in range(2):
        wanted = len(records(path)["u", 0]) + 4
        writer = multiprocessing.get_context("spawn").Process(target=_write, args=(path,))
        writer.start()
        while writer.is_alive() and len(records(path)["u", 0]) < wanted:
            pass
        assert writer.pid is not None
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
        report = verify(path)
        assert report.ok, str(report)
        assert report.situation == "left by a crash"
        verify(path, repair=True)
        assert verify(path).findings == []


def _write(path: Path) -> None:
    with sparklog.open(path, "rw") as log:
        while True:
            log.append("u", table("w-1", "w-2"))


@pytest.mark.deep
def test_others_at_work_are_no_finding(tmp_path: Path) -> None:
    """Two writers that roll, raise starts and change topics, and a cleaner; looked at meanwhile."""
    path = tmp_path / "log"
    make(path)
    context = multiprocessing.get_context("spawn")
    others = [context.Process(target=_churn, args=(path, n)) for n in range(2)]
    others.append(context.Process(target=_clean, args=(path,)))
    for process in others:
        process.start()
    try:
        while "kept" not in read_names(path):
            pass
        for _ in range(12):
            report = verify(path)
            assert report.ok, str(report)
            assert report.situation == "open"
        flip(logs(path / "t-1")[0], 100)
        bad = [f for f in verify(path).findings if f.severity in BAD]
        assert [(f.topic, f.partition, f.severity) for f in bad] == [("t", 1, Severity.DAMAGE)]
        flip(logs(path / "t-1")[0], 100)
    finally:
        for process in others:
            process.kill()
            process.join()
    assert verify(path).ok


def read_names(path: Path) -> str:
    return (path / "sparklog.topics").read_text()


def _churn(path: Path, number: int) -> None:
    with sparklog.open(path, "rw") as log:
        for n in range(10**6):
            fill(log, "t", 0, 1, first=n)
            if n % 20 == 0:
                log.delete_records("t", {0: log.offsets("t")[0][1] - 30})
            if n % 30 == 0:
                log.alter_topic("t", config={"retention.ms": n + 1})
                log.create_topic(f"new-{number}", if_not_exists=True)
                fill(log, f"new-{number}", 0, 2)
            if n % 30 == 15:
                log.delete_topic(f"new-{number}")


def _clean(path: Path) -> None:
    with sparklog.open(path, "rw") as log:
        log.create_topic("kept", config={**SMALL, "cleanup.policy": "compact"})
        commits = commits_of(log)
        assert commits is not None
        while True:
            fill(log, "kept", 0, 20)
            clean_partition(commits, "kept", 0)


def _faulty_world() -> World:
    world = small_world()
    fs, directory = world.fs, f"{ROOT}/t-0"
    names = fs.listdir(directory)
    for suffix in (".index", ".timeindex", ".snapshot"):
        name = [n for n in names if n.endswith(suffix)][-2]
        with fs.open(f"{directory}/{name}", write=True) as file:
            file.truncate(max(file.size() - 1, 0))
    with fs.open(f"{directory}/leader-epoch-checkpoint", write=True) as file:
        file.pwrite(b"x", 0)
    with fs.open(f"{directory}/notes.txt", create=True) as file:
        file.pwrite(b"mine", 0)
        file.sync()
    fs.sync_dir(directory)
    with fs.open(f"{ROOT}/{HIGH_WATERMARK}", write=True) as file:
        file.pwrite(b"x", 0)
    return world


@pytest.mark.parametrize(
    "power_cut",
    [pytest.param(False, id="kill", marks=pytest.mark.deep), pytest.param(True, id="power cut")],
)
def test_a_repair_that_was_cut_anywhere(power_cut: bool) -> None:
    """Nothing is lost, and the next repair finishes."""
    cuts = 0
    for call in range(1, 200):
        world = _faulty_world()
        world.fs.fail_at(call, DiskFault.KILL)
        try:
            verify(ROOT, repair=True, fs=world.fs, clock=world.clock, threads=1)
        except SimulatedKill:
            cuts += 1
        else:
            break
        fs = world.fs.crash_clone(mode="strict") if power_cut else world.fs.process()
        report = verify(ROOT, repair=True, fs=fs, clock=world.clock, threads=1)
        assert report.ok, f"call {call}: {report}"
        assert verify(ROOT, fs=fs, clock=world.clock, threads=1).ok
        with open_log(fs, world.clock) as log:
            assert view_of(log) == world.model.view()
        notes = [n for n in fs.listdir(ROOT) if n.endswith("notes.txt")]
        assert len(notes) == 1
    assert cuts > 10


def test_every_crash_of_a_writer_leaves_a_log_that_verifies() -> None:
    """After a kill: leftovers at most; after recovery: nothing."""
    for call in range(1, 60, 2):
        world = World.started(3)
        planned = world.plan_commit({("t", 0): 3, ("t", 1): 1})
        world.fs.fail_at(call, DiskFault.KILL)
        try:
            world.run(planned)
        except SimulatedKill:
            pass
        else:
            break
        fs = world.fs.process()
        report = verify(ROOT, fs=fs, clock=world.clock, threads=1)
        assert report.ok, f"call {call}: {report}"
        report = verify(ROOT, repair=True, fs=fs, clock=world.clock, threads=1)
        assert report.ok
        assert verify(ROOT, fs=fs, clock=world.clock, threads=1).findings == [], str(report)
    else:
        pytest.fail("the commit has more calls than were tried")


def test_flush_none_is_verified_as_well(tmp_path: Path) -> None:
    with sparklog.open(tmp_path, "rw", options={"flush": "none"}, clock=ManualClock(T0)) as log:
        log.create_topic("t")
        fill(log, "t", 0, 3)
        assert verify(tmp_path).findings == []
    assert verify(tmp_path).findings == []
    flip(logs(tmp_path / "t-0")[0], 90)
    assert [f.severity in BAD for f in verify(tmp_path).findings] == [True]
