"""A reset leaves the old checkpoint or the new one, and the log follows."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import sparklog
from sparklog.checkpoint import export, fork, history, import_, reset, verify
from sparklog.checkpoint.files import Checkpoint
from sparklog.checkpoint.log_backed.layout import METADATA_PARTITION, RUNS
from sparklog.checkpoint.log_backed.lock import CheckpointLock
from sparklog.checkpoint.log_backed.partition import CheckpointPartition
from sparklog.checkpoint.log_backed.partition_writer import Record, append
from sparklog.checkpoint.unfinished_reset import UnfinishedReset, complete
from sparklog.cli.app import run
from sparklog.clock import ManualClock
from sparklog.errors import (
    DataCorruptionError,
    InvalidRequestError,
    LogLockedError,
    StorageUnavailableError,
)
from sparklog.fs import LOCAL, FileSystem, LocalFileSystem
from sparklog.log.commit import Identity
from sparklog.log.log import Log
from sparklog.testing.crashfs import CrashFS
from sparklog.testing.faults import Fault, SimulatedKill
from tests.checkpoint.conftest import Golden
from tests.checkpoint.views import commit, load, read, tree, view


@pytest.mark.parametrize("backed", [False, True], ids=["files", "records"])
@pytest.mark.parametrize("name", ["hdfs", "processed"])
def test_it_goes_back_and_again(golden: Golden, name: str, backed: bool) -> None:
    path = golden(name)
    if backed:
        import_(path)
    reachable = [row.batch for row in history(path).batches if row.obstacle is None]
    for batch in (reachable[-2], reachable[1]):
        before = view(path)
        plan = reset(path, to=batch, dry_run=True)
        assert view(path) == before
        done = reset(path, to=batch)
        assert (done.batch, done.batches, done.files) == (batch, plan.batches, plan.files)
        assert [row.batch for row in history(path).batches][-1] == batch
        assert {p: d for p, d in before.items() if p in view(path)} | view(path) == {
            p: d for p, d in before.items() if p in view(path)
        } | ({} if name != "processed" else _operators(path))
        assert verify(path).findings == []
    assert [p.name for p in path.parent.iterdir()] == [name]


def _operators(path: Path) -> dict[str, bytes]:
    return {p: d for p, d in view(path).items() if "_metadata/v2/" in p}


def test_what_it_says(golden: Golden) -> None:
    path = golden("stateless")
    plan = reset(path, to=9, dry_run=True)
    assert str(plan) == f"{path} would go back to batch 9: drops batches 10..12, 5 files"
    assert plan.to_dict()["dry_run"] is True
    done = reset(path, to=9)
    assert str(done) == f"{path} went back to batch 9: drops batches 10..12, 5 files"


def test_refused_while_the_query_runs(golden: Golden) -> None:
    path = golden("hdfs")
    import_(path)
    before = tree(path)
    with CheckpointLock(LOCAL, str(path / "sparklog")) as lock:
        lock.take_running("run")
        advice = "a query runs.*: stop the query, then reset it; or fork it, which works meanwhile"
        with pytest.raises(LogLockedError, match=advice):
            reset(path, to=9)
        assert reset(path, to=9, dry_run=True).batch == 9
        assert fork(path, path.with_name("fork"), to=9).batch == 9
    assert tree(path) == before
    assert sorted(p.name for p in path.parent.iterdir()) == ["fork", "hdfs"]
    assert reset(path, to=9).batch == 9
    assert verify(path).latest == verify(path.with_name("fork")).latest == 9


def test_who_waited_for_the_lock_of_a_checkpoint_that_was_reset_tries_again(golden: Golden) -> None:
    path = golden("hdfs")
    import_(path)
    with CheckpointLock(LOCAL, str(path / "sparklog")) as lock:
        reset(path, to=9)
        with pytest.raises(LogLockedError, match="reset or converted just now: try again"):
            lock.take_running("reset it")
    with CheckpointLock(LOCAL, str(path / "sparklog")) as lock:
        lock.take_running("reset it")


def test_an_ordinary_checkpoint_with_a_batch_under_way(golden: Golden) -> None:
    path = golden("stateless")
    began = (path / "offsets/12").stat().st_mtime_ns // 1_000_000
    clock = ManualClock(began + 9_999)
    with pytest.raises(LogLockedError, match="batch 12 began 9999 ms ago") as caught:
        reset(path, to=9, clock=clock)
    assert caught.value.retriable
    clock.advance(1)
    reset(path, to=9, clock=clock)


def test_a_query_that_commits_meanwhile_is_noticed(golden: Golden) -> None:
    path = golden("stateless")
    before = tree(path)

    class Committing(LocalFileSystem):
        def link(self, src: str, dst: str) -> None:
            (path / "commits/12").write_text("v1\n{}")
            super().link(src, dst)

    with pytest.raises(LogLockedError, match="the query is running: stop it before the reset"):
        reset(path, to=9, fs=Committing())
    assert tree(path) == {**before, "commits/12": b"v1\n{}"}
    assert reset(path, to=9).batch == 9
    assert verify(path).latest == 9


def test_a_batch_that_is_gone(golden: Golden) -> None:
    path = golden("hdfs")
    with pytest.raises(InvalidRequestError, match="the earliest possible batch is 8"):
        reset(path, to=2)


def test_tasks_of_runs_before_are_fenced_off(golden: Golden) -> None:
    """The first run in the list may write; the reset puts one there that never was."""
    path = golden("hdfs")
    import_(path)
    append(
        CheckpointPartition(LOCAL, str(path / "sparklog" / METADATA_PARTITION)),
        [Record(RUNS, b"run-b\nrun-a", 1)],
    )
    reset(path, to=9)
    runs = CheckpointPartition(LOCAL, str(path / "sparklog" / METADATA_PARTITION)).read(RUNS)
    assert runs is not None
    first, *rest = runs.decode().split("\n")
    assert len(first) == 36
    assert rest == ["run-b", "run-a"]
    assert RUNS not in Checkpoint.open(path).paths()


HOLD = """
import sys
from sparklog.checkpoint.log_backed.lock import CheckpointLock
from sparklog.fs import LOCAL
with CheckpointLock(LOCAL, sys.argv[1]) as lock, lock.partition("offsets-0"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.skipif(shutil.which("fuser") is None, reason="no fuser (package psmisc)")
def test_a_process_that_writes_a_partition_for_long_is_found(
    golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = golden("hdfs")
    import_(path)
    monkeypatch.setattr("sparklog.checkpoint.log_backed.lock.attempts", lambda _: [0])
    command = [sys.executable, "-c", HOLD, str(path / "sparklog")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with (
            CheckpointLock(LOCAL, str(path / "sparklog")) as lock,
            pytest.raises(LogLockedError, match="find it by: fuser ") as caught,
            lock.partition("offsets-0"),
        ):
            pass
        found = str(caught.value).partition("find it by: ")[2].split()
        shown = subprocess.run(found, capture_output=True, text=True, check=True)
        assert str(holder.pid) in shown.stdout.split()
        holder.communicate()
    with CheckpointLock(LOCAL, str(path / "sparklog")) as lock, lock.partition("offsets-0"):
        pass


class NoExchange(LocalFileSystem):
    def exchange(self, one: str, other: str) -> bool:
        return False


def test_a_file_system_that_cannot_exchange(golden: Golden) -> None:
    path = golden("hdfs")
    before = tree(path)
    with pytest.raises(InvalidRequestError, match=r"use sparklog\.checkpoint\.fork"):
        reset(path, to=9, fs=NoExchange())
    assert tree(path) == before
    assert [p.name for p in path.parent.iterdir()] == ["hdfs"]
    assert fork(path, path.with_name("fork"), to=9, fs=NoExchange()).batch == 9
    assert verify(path.with_name("fork")).latest == 9


class Mounted(LocalFileSystem):
    """A directory that is a file system's root: nothing can be moved out of it."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._root = str(root)

    def identity(self, path: str) -> tuple[int, int]:
        device, inode = super().identity(path)
        return (device if self._is_in(path) else device + 1), inode

    def rename(self, src: str, dst: str) -> None:
        if self._is_in(src) != self._is_in(dst):
            raise StorageUnavailableError("Invalid cross-device link")
        super().rename(src, dst)

    def _is_in(self, path: str) -> bool:
        return f"{path}/".startswith(f"{self._root}/")


def test_a_mount_point(golden: Golden) -> None:
    """No reset, which is said before anything is copied; import and export go well."""
    path = golden("hdfs")
    fs, before, files = Mounted(path), view(path), tree(path)
    for dry_run in (True, False):
        with pytest.raises(InvalidRequestError, match=r"is a mount point.*checkpoint\.fork"):
            reset(path, to=9, dry_run=dry_run, fs=fs)
    assert tree(path) == files
    import_(path, fs=fs)
    export(path, fs=fs)
    assert view(path) == before
    assert not (path / "sparklog").exists()
    assert [p.name for p in path.parent.iterdir()] == ["hdfs"]


# -- with a log ------------------------------------------------------------------------------------


def write_log(path: str, query: str, fs: FileSystem = LOCAL) -> None:
    with sparklog.open(path, mode="rw", fs=fs) as log:
        log.create_topic("t")
        for batch in range(6, 12):
            commit(log, query, batch)


def is_reset(path: str, query: str, fs: FileSystem = LOCAL) -> bool:
    """Whether batch 10 is new to the log: planned otherwise, it is a conflict if it isn't."""
    with sparklog.open(path, mode="rw", fs=fs) as log:
        return log.committed(_other(query)) is None if _taken(log, query) else False


def _other(query: str) -> Identity:
    return Identity(writer=query, batch=10, fingerprint="anew")


def _taken(log: Log, query: str) -> bool:
    try:
        log.committed(_other(query))
    except sparklog.BatchConflictError:
        return False
    return True


def test_the_log_takes_the_batches_anew(golden: Golden, tmp_path: Path) -> None:
    path, log = golden("stateless"), str(tmp_path / "log")
    query = history(path).query_id or ""
    write_log(log, query)
    assert not is_reset(log, query)
    done = reset(path, to=9, log=log)
    assert (done.log, done.writer) == (log, query)
    assert not (path / "sparklog.reset").exists()
    assert is_reset(log, query)
    with sparklog.open(log, mode="rw") as opened:
        for _ in range(2):  # once, and then as a replay
            commit(opened, query, 10, "anew")
        assert read(opened)[-6:] == ["11 0", "11 1", "11 2", "10 0", "10 1", "10 2"]
        commit(opened, query, 11, "anew")


def test_a_log_that_is_none(golden: Golden, tmp_path: Path) -> None:
    path = golden("stateless")
    with pytest.raises(InvalidRequestError, match="contains no log that sparklog wrote"):
        reset(path, to=9, log=tmp_path / "log")
    assert not (tmp_path / "log").exists()
    write_log(str(tmp_path / "sink"), history(path).query_id or "")
    assert reset(path, to=9, log=tmp_path / "sink").log == str(tmp_path / "sink")


def test_a_log_that_the_query_never_wrote_to(golden: Golden, tmp_path: Path) -> None:
    """The one that it did write to would refuse the batches that come again."""
    path = golden("stateless")
    before = tree(path)
    write_log(str(tmp_path / "log"), "another/sink")
    for writer in (None, "other"):
        advice = r"its writers are: another/sink\. Use the log of the query's sink"
        with pytest.raises(InvalidRequestError, match=advice):
            reset(path, to=9, log=tmp_path / "log", writer=writer, dry_run=writer is None)
    assert tree(path) == before
    reset(path, to=9, log=tmp_path / "log", writer="another")
    write_log(str(tmp_path / "sink"), history(path).query_id or "")
    reset(path, to=8, log=tmp_path / "sink")
    assert is_reset(str(tmp_path / "sink"), history(path).query_id or "")


def test_a_pending_reset_whose_log_is_gone(golden: Golden, tmp_path: Path) -> None:
    path = golden("stateless")
    note = {"log": str(tmp_path / "log"), "writer": "q", "batch": 9, "time": 1}
    (path / "sparklog.reset").write_text(json.dumps(note))
    with pytest.raises(
        InvalidRequestError, match=r"sparklog\.reset: .* there is no log: restore the log"
    ):
        reset(path, to=9)


def test_a_pending_reset_is_completed_by_the_next(golden: Golden, tmp_path: Path) -> None:
    path, log = golden("stateless"), str(tmp_path / "log")
    query = history(path).query_id or ""
    write_log(log, query)
    note = {"log": log, "writer": query, "batch": 9, "time": 1}
    (path / "sparklog.reset").write_text(json.dumps(note))
    assert complete(str(path)) == UnfinishedReset(log=log, writer=query, batch=9, time_ms=1)
    assert complete(str(path)) is None
    assert is_reset(log, query)


def test_batches_that_a_restored_log_lacks_are_computed_anew(
    golden: Golden, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As the log advises that misses batches 10 and 11; what came since is there twice."""
    path, log = golden("stateless"), str(tmp_path / "log")
    query = history(path).query_id or ""
    with sparklog.open(log, mode="rw") as opened:
        opened.create_topic("t")
        for batch in (8, 9, 12):
            commit(opened, query, batch)
    (told,) = [r.getMessage() for r in caplog.records if "continues with" in r.getMessage()]
    (command,) = re.findall(r"`sparklog ([^`]*)`", told)
    words = command.replace("CHECKPOINT", str(path)).replace("LOG", log).split()
    assert run(words) == 0
    with sparklog.open(log, mode="rw") as opened:
        for batch in (10, 11, 12):
            assert not commit(opened, query, batch).replayed
        numbers = [int(value.split()[0]) for value in read(opened)]
    assert numbers == [n for n in (8, 9, 12, 10, 11, 12) for _ in range(3)]


def test_a_note_that_cannot_be_read(golden: Golden) -> None:
    path = golden("stateless")
    (path / "sparklog.reset").write_text('{"log": 1}')
    with pytest.raises(DataCorruptionError, match=r"sparklog\.reset: the file can't be read"):
        reset(path, to=9)


@pytest.mark.deep
@pytest.mark.parametrize("backed", [False, True], ids=["files", "records"])
def test_killed_at_every_call(golden: Golden, backed: bool) -> None:
    """Before or after, whole; once it is asked, no reset checkpoint whose log hasn't followed."""
    path = golden("stateless")
    for n in (6, 7):  # few files are enough
        (path / f"commits/{n}").unlink()
        (path / f"offsets/{n}").unlink()
    for checksum in path.rglob(".*.crc"):
        checksum.unlink()
    if backed:
        import_(path)
    query = history(path).query_id or ""
    before = view(path)
    machine = CrashFS()
    load(machine, path, "/c")
    write_log("/log", query, machine)
    number, outcomes = 0, set[bool]()
    while True:
        number += 1
        fs = machine.kill_clone()
        fs.fail_at(number, Fault.KILL)
        try:
            reset("/c", to=9, log="/log", fs=fs)
        except SimulatedKill:
            pass
        else:
            break
        afters = fs.kill_clone(), fs.crash_clone(mode="strict"), fs.crash_clone(mode="all")
        for turn, after in enumerate(afters):
            found = view("/c", after)
            numbers = sorted(int(p[8:]) for p in found if p.startswith("offsets/"))
            is_after = numbers[-1] == 9
            assert is_after or found == before
            outcomes.add(is_after)
            if number % 3 != turn:
                continue
            complete("/c", fs=after)
            assert is_reset("/log", query, after) is is_after
            if number % 5 == 0:
                reset("/c", to=9, log="/log", fs=after)
                assert is_reset("/log", query, after)
                assert after.listdir("/") == ["c", "log"]
    assert outcomes == {False, True}
    assert number > 50
