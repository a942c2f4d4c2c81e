"""PROTOCOL, "Failure modes", by name: who may open a log, and what keeps brokers out (C3, C4)."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import sparklog
from sparklog.clock import ManualClock
from sparklog.errors import LogLockedError, SparklogError
from sparklog.testing.crashfs import CrashFS, CrashLockFile
from sparklog.testing.faults import Call, Fault, SimulatedKill
from tests.crash.harness import ROOT, TOPIC, World, open_log, table, view_of
from tests.oracle import Oracle, OracleError

ONE, TWO = (TOPIC, 0), (TOPIC, 1)

# What Java's FileChannel.tryLock does: a POSIX lock on the whole file.
BROKER = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        sys.exit(3)
"""


def broker_may_start(directory: Path) -> bool:
    path = directory / ".lock"
    done = subprocess.run([sys.executable, "-c", BROKER, str(path)], check=False)
    assert done.returncode in (0, 3)
    return done.returncode == 0


def test_copy_lock_in_process(tmp_path: Path) -> None:
    """A POSIX lock is lost when any descriptor of the file is closed; ours is not."""
    root = tmp_path / "log"
    with sparklog.open(str(root), "rw") as log:
        log.create_topic(TOPIC)
        for name in (".lock", "sparklog.lock"):
            shutil.copyfile(root / name, tmp_path / "copy")
        shutil.copytree(root, tmp_path / "backup")
        assert not broker_may_start(root)
        log.append(TOPIC, table([b"x"]))
    assert broker_may_start(root)


class BrokerThatStops(CrashFS):
    """Between our open and our lock a stopping broker unlinks .lock and lets it go."""

    broker: CrashLockFile | None = None

    def open_lock(self, path: str, *, create: bool = True) -> CrashLockFile:
        file = super().open_lock(path, create=create)
        if self.broker is not None and path.endswith("/.lock"):
            self.disk_of_broker_unlinks(path)
        return file

    def disk_of_broker_unlinks(self, path: str) -> None:
        assert self.broker is not None
        broker, self.broker = self.broker, None
        self.process().unlink(path)
        broker.close()


def test_broker_stop_unlinks_lock() -> None:
    clock = ManualClock()
    fs = BrokerThatStops(clock=clock)
    open_log(fs, clock).close()
    broker = fs.process().open_lock(f"{ROOT}/.lock")
    assert broker.try_lock(0, 0, exclusive=True)
    with pytest.raises(LogLockedError, match="broker"):
        open_log(fs, clock)
    fs.broker = broker
    log = open_log(fs, clock)
    next_broker = fs.process().open_lock(f"{ROOT}/.lock")
    assert not next_broker.try_lock(0, 0, exclusive=True), "two holders on two inodes"
    log.close()
    assert next_broker.try_lock(0, 0, exclusive=True)


def test_a_replaced_lock_file_is_noticed() -> None:
    """Our own lock file is never deleted; if somebody does, writers still meet on one inode."""
    world = World.started()
    world.fs.unlink(f"{ROOT}/sparklog.lock")
    with contextlib.suppress(SparklogError):
        world.run(world.plan_append(ONE, 1))
    other = open_log(world.fs.process(), world.clock)
    with contextlib.suppress(SparklogError):
        world.run(world.plan_append(ONE, 1))
    assert view_of(other) == world.model.view()
    other.append(TOPIC, table([b"theirs"]), partition=0)
    world.model = world.model.with_values({ONE: [b"theirs"]})
    world.run(world.plan_append(ONE, 1))
    assert view_of(other) == world.model.view() == view_of(world.opened)


def test_forked_child_holds(tmp_path: Path) -> None:
    """A child that was forked with the log open neither keeps it locked nor may use it."""
    root = tmp_path / "log"
    log = sparklog.open(str(root), "rw")
    log.create_topic(TOPIC)
    hears, tells = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            log.append(TOPIC, table([b"from the child"]))
            os.write(tells, b"appended")
        except SparklogError as error:
            with sparklog.open(str(root), "rw") as own:
                own.append(TOPIC, table([b"its own"]))
            told = "open it again in this process" in str(error)
            os.write(tells, b"refused" if told else b"unclear")
            signal.pause()  # it lives until it is killed
        finally:
            os._exit(1)
    try:
        os.close(tells)
        assert os.read(hears, 100) == b"refused"
        log.append(TOPIC, table([b"mine"]))
        log.close()
        assert not (root / "sparklog_open").exists(), "the child counted as a session"
        assert broker_may_start(root)
        with sparklog.open(str(root), "r") as again:
            assert [v for _, _, vs in view_of(again).values() for v in vs] == [b"its own", b"mine"]
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(hears)


def test_two_threads_two_logs(tmp_path: Path) -> None:
    """POSIX locks between threads give false EDEADLK; ours just wait."""
    logs = [sparklog.open(str(tmp_path / name), "rw") for name in "ab"]
    twins = [sparklog.open(str(tmp_path / name), "rw") for name in "ab"]
    for log in logs:
        log.create_topic(TOPIC)
    errors: list[BaseException] = []

    def work(order: list[sparklog.Log]) -> None:
        try:
            for number in range(25):
                for log in order:
                    log.append(TOPIC, table([b"%d" % number]))
        except BaseException as error:
            errors.append(error)

    threads = [
        threading.Thread(target=work, args=(order,))
        for order in (logs, logs[::-1], twins, twins[::-1])
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    assert not errors
    for log in (*logs, *twins):
        assert view_of(log)[ONE][1] == 100
        log.close()


def test_kill_then_broker_refuses() -> None:
    """Whenever a commit is cut, the guard stands in the broker's way, also after a power cut."""
    world = World.started()
    planned = world.plan_commit({ONE: 3, TWO: 3})
    rng = random.Random(1)
    images: list[CrashFS] = []

    def cut(call: Call) -> None:
        images.extend((world.fs.kill_clone(), world.fs.crash_clone(rng)))
        images.append(world.fs.crash_clone(mode="strict"))

    world.fs.on_call = cut
    world.run(planned)
    world.fs.on_call = None
    assert len(images) > 20
    for image in images:
        assert image.is_dir(f"{ROOT}/sparklog_open")
        assert not image.exists(f"{ROOT}/.kafka_cleanshutdown")
    world.run(world.plan_close())
    for image in (world.fs.kill_clone(), world.fs.crash_clone(mode="strict")):
        assert not image.exists(f"{ROOT}/sparklog_open")
        assert image.exists(f"{ROOT}/.kafka_cleanshutdown")


def test_kafka_refuses_the_guard(oracle: Oracle, tmp_path: Path) -> None:
    """The guard's name is one that Kafka can't take for a partition, and so won't start on."""
    guard = tmp_path / "sparklog_open"
    guard.mkdir()
    with pytest.raises(OracleError, match="not in the form of topic-partition"):
        oracle.open(guard)


def broker_appends(fs: CrashFS, count: int, epoch: int) -> list[bytes]:
    """Write to t-0 as a broker would that was killed: no clean mark, no high watermark."""
    from sparklog.format.scan import rebase
    from tests.crash.harness import chunk

    values = [b"broker-%d" % n for n in range(count)]
    with sparklog.open(ROOT, "r", fs=fs) as log:
        end = log.offsets(TOPIC)[0][1]
    names = [n for n in fs.listdir(f"{ROOT}/{TOPIC}-0") if n.endswith(".log")]
    with contextlib.suppress(FileNotFoundError):
        fs.unlink(f"{ROOT}/.kafka_cleanshutdown")
        fs.sync_dir(ROOT)
    raw = bytearray(chunk(TOPIC, 0, values, 1_700_000_900_000).data or b"")
    rebase(raw, end, epoch)
    with fs.open(f"{ROOT}/{TOPIC}-0/{names[-1]}", write=True) as file:
        file.pwrite(raw, file.size())
        file.pwrite(raw[:40], file.size())  # and a torn one
        file.sync()
    return values


def test_broker_append_kill_reopen_keeps() -> None:
    """What a broker acknowledged is never cut to the ledger's end."""
    world = World.started()
    world.run(world.plan_close())
    world.model = world.model.with_values({ONE: broker_appends(world.fs, 5, epoch=7)})
    world.run(world.plan_open())
    assert view_of(world.opened) == world.model.view()
    world.run(world.plan_append(ONE, 2))
    assert view_of(world.opened) == world.model.view()
    epochs = world.fs.open(f"{ROOT}/{TOPIC}-0/leader-epoch-checkpoint").pread(1000, 0).split(b"\n")
    assert int(epochs[-2].split()[0]) > 7, "a broker at epoch 7 would truncate what we append"


@pytest.mark.deep
def test_an_adoption_is_cut_anywhere() -> None:
    for number in range(1, 200):
        world = World.started(number)
        world.run(world.plan_close())
        world.model = world.model.with_values({ONE: broker_appends(world.fs, 3, epoch=7)})
        world.fs.fail_at(number, Fault.KILL)
        try:
            world.open()
        except SimulatedKill:
            rng = random.Random(number)
            for fs in (world.fs.process(), world.fs.crash_clone(rng)):
                with open_log(fs, world.clock) as log:
                    assert view_of(log) == world.model.view()
        else:
            assert number > 10
            return


def test_locks_are_ofd_locks(tmp_path: Path) -> None:
    """A broker's POSIX lock, taken by Java, keeps us out."""
    root = tmp_path / "log"
    sparklog.open(str(root), "rw").close()
    holder = subprocess.Popen(
        [sys.executable, "-c", BROKER + "    print('held', flush=True)\n    sys.stdin.read()",
         str(root / ".lock")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert holder.stdout is not None
    assert holder.stdin is not None
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(LogLockedError, match="broker"):
        sparklog.open(str(root), "rw")
    holder.stdin.close()
    holder.stdout.close()
    holder.wait()
    sparklog.open(str(root), "rw").close()
