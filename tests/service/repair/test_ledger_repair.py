"""`verify(repair=True)` of a damaged commit ledger: what it finds, what it reports as lost."""

import shutil
from pathlib import Path

import pytest

import sparklog
from sparklog import BatchConflictError, DataCorruptionError
from sparklog.common import TopicPartition
from sparklog.fs import LOCAL
from sparklog.log.log import home_of
from sparklog.logdir.home import commits_of
from sparklog.logdir.ledger import LedgerFiles
from sparklog.logdir.state_copy import STATE_NAME
from sparklog.service import Verification, verify
from sparklog.testing.faults import Fault as DiskFault
from sparklog.testing.faults import SimulatedKill
from tests import depth
from tests.crash.harness import ROOT, World, open_log, view_of
from tests.crash.test_corruption import small_world
from tests.service.logs import flip, patch, records
from tests.service.repair.damaged_logs import (
    DAMAGES,
    LEDGER,
    LEDGER_LOG,
    RETENTION_MS,
    at,
    commit,
)

Records = dict[tuple[str, int], list[tuple[int, bytes]]]


def repair(path: Path) -> Verification:
    """Repair a log; the report before names the same losses and changes nothing."""
    files = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    before = verify(path, clock=at(5000))
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == files
    report = verify(path, repair=True, clock=at(5000))
    assert report.ok, str(report)
    assert report.refused is None
    _, _, foreseen = str(before).partition(". A repair would lose: ")
    losses = [line.removeprefix("lost: ") for line in lost(report)]
    if not losses and "Lost: which commits" in str(report.done):
        losses = ["which commits were made before"]
    assert foreseen.startswith("; ".join(losses) or "nothing"), (str(before), report.done)
    return report


def lost(report: Verification) -> list[str]:
    return [line for line in report.done if line.startswith("lost: ")]


def check_facts(log: sparklog.Log) -> None:
    """Check configurations, log starts and the deleted topic, which is given back."""
    assert log.topics()["u"].config.retention_ms == RETENTION_MS
    assert log.offsets("t")[0][0] == 20
    assert [topic.name for topic in log.deleted_topics()] == ["d"]
    log.undelete_topic("d")
    assert log.read("d").read_all().num_rows == 4


LEDGER_DAMAGES = [
    (file, damage)
    for file in (LEDGER, LEDGER_LOG)
    for damage in DAMAGES
    if file != LEDGER or damage in ("missing", "empty")
]


@pytest.mark.parametrize(("file", "damage"), LEDGER_DAMAGES)
def test_nothing_is_lost_of_a_closed_log(file: str, damage: str, logs: Path) -> None:
    """The copy of its state, or a flipped bit's correction, has all that the ledger had."""
    path = logs / "closed"
    before = records(path)
    DAMAGES[damage](path / file)
    with pytest.raises(DataCorruptionError, match="`sparklog verify PATH --repair`"):
        sparklog.open(path, "rw", clock=at(4000))
    report = repair(path)
    assert lost(report) == []
    assert records(path) == before
    with sparklog.open(path, "rw", clock=at(6000)) as log:
        assert commit(log, "q", 4).replayed
        assert commit(log, "p", 0).replayed
        with pytest.raises(BatchConflictError):
            commit(log, "p", 0, run="other")
        assert not commit(log, "q", 5).replayed
        assert not commit(log, "new", 0).replayed
        check_facts(log)
    assert all("set aside by a repair" in f.what for f in verify(path).findings)


@pytest.mark.parametrize(("file", "damage"), LEDGER_DAMAGES)
@pytest.mark.parametrize("name", ["crashed", "closed"])
def test_a_log_of_an_older_sparklog_names_its_losses(
    name: str, file: str, damage: str, logs: Path
) -> None:
    """It has no copy of its state. What can't be found again is named, and not written twice."""
    path = logs / name
    (path / STATE_NAME).unlink(missing_ok=True)
    before = records(path)
    DAMAGES[damage](path / file)
    report = repair(path)
    assert records(path) == before
    with sparklog.open(path, "rw", clock=at(6000)) as log:
        if damage == "flipped":
            assert lost(report) == []
            assert commit(log, "p", 0).replayed
        else:
            (writers,) = [line for line in lost(report) if "which writers committed" in line]
            assert "u-0 [" in writers
            for batch in (0, 1):  # p's only commit was in the lost part
                with pytest.raises(BatchConflictError, match=r"Log\.reset\('p', "):
                    commit(log, "p", batch)
        assert log.topics()["u"].config.retention_ms == RETENTION_MS
        assert log.offsets("t")[0][0] == 20
        assert [topic.name for topic in log.deleted_topics()] == ["d"]
    if damage not in ("missing", "empty"):
        assert any(p.name.startswith("sparklog-quarantine-") for p in path.iterdir())


def test_a_writer_goes_on_once_its_last_batch_is_declared(logs: Path) -> None:
    """Batch 0 of p is in the log, batch 5 of q is not: both pieces of advice of the error."""
    path = logs / "crashed"
    DAMAGES["truncated"](path / LEDGER_LOG)
    (path / STATE_NAME).unlink()
    repair(path)
    with sparklog.open(path, "rw", clock=at(6000)) as log:
        end = log.offsets("u")[0][1]
        with pytest.raises(BatchConflictError, match=r"reset\('p', -1\).*reset\('p', 0\)"):
            commit(log, "p", 0)
        log.reset("p", 0)
        assert commit(log, "p", 0).replayed
        assert not commit(log, "p", 1).replayed
        with pytest.raises(BatchConflictError, match=r"Log\.reset\('q', 4\)"):
            commit(log, "q", 5)
        log.reset("q", 4)
        assert not commit(log, "q", 5).replayed
        assert commit(log, "q", 5).replayed
        log.reset("new", -1)
        assert not commit(log, "new", 0).replayed
        assert log.offsets("u")[0][1] == end + 3
    with sparklog.open(path, "rw", clock=at(7000)) as log:  # the declarations are durable
        assert commit(log, "new", 0).replayed
        with pytest.raises(BatchConflictError, match="was repaired at"):
            commit(log, "another", 0)
        commits = commits_of(log)
        assert commits is not None
        commits.write_snapshot()
        assert commits.state.lost is not None
        log.delete_records("u", {0: end})  # what was lost is out of reach
        assert not commit(log, "another", 0).replayed
    assert [f for f in verify(path).findings if "contradicts" in f.what] == []


def test_a_flipped_bit_is_corrected_wherever_it_is(logs: Path) -> None:
    path = logs / "closed"
    raw = (path / LEDGER_LOG).read_bytes()
    known = list(LedgerFiles(LOCAL, str(path)).records(0, 70))
    for bit in range(11, 8 * len(raw), 8 * len(raw) // depth.FLIPS):
        (path / LEDGER_LOG).write_bytes(raw)
        flip(path / LEDGER_LOG, bit // 8, 1 << bit % 8)
        assert not verify(path).ok
        report = repair(path)
        assert lost(report) == []
        assert (path / LEDGER_LOG).exists(), f"bit {bit} was not corrected: {report}"
        assert list(LedgerFiles(LOCAL, str(path)).records(0, 70)) == known
        for name in path.glob("sparklog-quarantine-*"):
            name.unlink()


def _with_segments(path: Path) -> list[int]:
    """Give the ledger two more segments; return the bases of all."""
    with sparklog.open(path, "rw", clock=at(2000)) as log:
        commits = commits_of(log)
        assert commits is not None
        for batch in (1, 2):
            with commits.exclusive():
                commits.write_snapshot()
            commit(log, "p", batch)
        return [int(p.stem) for p in sorted((path / LEDGER).glob("*.log"))]


def test_damage_in_an_older_segment_costs_history_alone(logs: Path) -> None:
    path = logs / "closed"
    bases = _with_segments(path)
    patch(path / LEDGER_LOG, 3000, bytes(900))
    assert not verify(path).ok
    with sparklog.open(path, "rw", clock=at(3000)) as log:  # opening doesn't need it
        assert commit(log, "p", 2).replayed
    report = repair(path)
    assert any(f"begins at offset {bases[1]} now" in line for line in report.done)
    with sparklog.open(path, "rw", clock=at(6000)) as log:
        assert commit(log, "q", 4).replayed
        assert commit(log, "p", 2).replayed
        check_facts(log)


def test_the_snapshot_of_a_segment_follows_from_the_segment_before(logs: Path) -> None:
    path = logs / "closed"
    bases = _with_segments(path)
    (path / STATE_NAME).unlink()
    patch(path / LEDGER / f"{bases[-1]:020d}.log", 40, bytes(300))
    report = repair(path)
    assert lost(report) == []
    with sparklog.open(path, "rw", clock=at(6000)) as log:
        for writer, batch in (("q", 4), ("p", 2)):
            assert commit(log, writer, batch).replayed
        check_facts(log)


def test_the_directories_tell_where_all_small_files_are_lost(logs: Path) -> None:
    path = logs / "closed"
    before = records(path)
    for name in (LEDGER, STATE_NAME, "sparklog.topics"):
        DAMAGES["missing"](path / name)
    report = repair(path)
    assert any("the configuration of topic u" in line for line in lost(report))
    assert records(path) == before
    with sparklog.open(path, "rw", clock=at(6000)) as log:
        assert log.topics()["u"].config.retention_ms == -1
        assert log.offsets("t") == {0: (20, 76), 1: (0, 24)}
        assert [topic.name for topic in log.deleted_topics()] == ["d"]


def test_an_open_log_is_not_repaired(logs: Path) -> None:
    path = logs / "closed"
    with sparklog.open(path, "rw", clock=at(2000)):
        DAMAGES["truncated"](path / LEDGER_LOG)
        report = verify(path, repair=True)
        assert not report.ok
        assert "end its queries, services and other writers" in str(report.refused)


def _harmed(power_cut: bool, *, close: bool) -> World:
    world = small_world(close=close)
    fs, ledger = world.fs, f"{ROOT}/{LEDGER}"
    for name in fs.listdir(ledger):
        if name.endswith(".log"):
            with fs.open(f"{ledger}/{name}", write=True) as file:
                file.truncate(file.size() * 2 // 3)
                file.sync()
    if not close:
        world.fs = fs.crash_clone(mode="strict") if power_cut else fs.kill_clone()
    return world


@pytest.mark.parametrize("close", [True, False], ids=["closed", "left by a crash"])
@pytest.mark.parametrize("power_cut", [False, True], ids=["kill", "power cut"])
def test_a_repair_that_was_cut_anywhere_is_repeated(power_cut: bool, close: bool) -> None:
    cuts = 0
    for call in range(1, 999, depth.REPAIR_CUT_STEP):
        world = _harmed(power_cut, close=close)
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
        with open_log(fs, world.clock) as log:
            assert view_of(log) == world.model.view(), f"call {call}"
    assert cuts > 1


def test_the_state_copy_of_another_ledger_is_older(logs: Path) -> None:
    """A copy from before the last session counts, and so do the ledger's records behind it."""
    path = logs / "closed"
    shutil.copy(logs / "older" / STATE_NAME, path / STATE_NAME)
    patch(path / LEDGER_LOG, 100, bytes(2000))
    report = repair(path)
    assert any("sparklog.state, as of ledger offset 62" in line for line in report.done)
    assert lost(report) == []
    with sparklog.open(path, "rw", clock=at(6000)) as log:
        assert commit(log, "q", 4).replayed
        assert commit(log, "p", 0).replayed
        check_facts(log)
        key = TopicPartition("u", 0)
        assert log.offsets("u")[0] == (0, home_of(log).view.spans([key])[key][1])
