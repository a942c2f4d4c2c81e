"""A log dir that can't be written, seen by who doesn't write: LogDirectoryOffline.

The disks really fail: a tmpfs that is full, a process that may not write files any longer.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import sparklog
from sparklog.clock import ManualClock
from sparklog.errors import StorageUnavailableError
from sparklog.service import Service
from sparklog.service.metrics import Observer, collect
from sparklog.service.metrics.samples import samples
from sparklog.testing.crashfs import CrashFS
from sparklog.testing.faults import Call, Fault
from tests.service.test_service import rows, stepped

OFFLINE = "kafka_log_logmanager_logdirectoryoffline"

WRITER = """
import resource, sys
import pyarrow as pa
import sparklog
from sparklog.errors import StorageUnavailableError

with sparklog.open(sys.argv[1], "rw") as log:
    for line in sys.stdin:
        soft = int(line)  # bytes that a file may have; Python ignores SIGXFSZ
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, resource.RLIM_INFINITY))
        try:
            log.append("t", pa.table({"value": [b"x" * 200]}))
            print("written", flush=True)
        except StorageUnavailableError as error:
            print("failed", flush=True)
"""


class Writer:
    """Another process that has the log open, and may be kept from writing."""

    def __init__(self, path: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", WRITER, path],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip

    def write(self, limit: int = -1) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{limit}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def writer(path: str) -> Iterator[Writer]:
    with sparklog.open(path, "rw") as log:
        log.create_topic("t")
        log.append("t", rows(["x" * 8000]))
    made = Writer(path)
    yield made
    made.kill()


def offline(observer: Observer) -> dict[str, float]:
    """{log dir: whether it is offline, as the endpoint of this process says}"""
    found = samples(observer.observe())
    return {s.labels[0]: s.value for s in found if s.metric.name == OFFLINE}  # type: ignore[misc]


def test_another_process_that_can_not_write(path: str, writer: Writer) -> None:
    observer = Observer(path)
    assert writer.write() == "written"
    assert offline(observer) == {path: 0}
    assert writer.write(5000) == "failed"
    assert offline(observer) == {path: 1}
    assert collect(path).directories[0].failing
    with sparklog.open(path, "rw") as log:  # who can write doesn't hide it
        log.append("t", rows(["y"]))
        assert offline(observer) == {path: 1}
        assert writer.write() == "written"
        assert offline(observer) == {path: 0}
        assert writer.write(5000) == "failed"
        assert offline(observer) == {path: 1}
        writer.kill()  # it's no trouble of the log's any more
        assert offline(observer) == {path: 0}
        log.append("t", rows(["z"]))
    with sparklog.open(path) as log:
        values = [value[:1] for value in log.read("t").read_all()["value"].to_pylist()]
    assert values == [b"x", b"x", b"y", b"x", b"z"]


def test_a_disk_that_is_full(small_disk: Path, clock: ManualClock) -> None:
    """Nobody commits; the service's trial tells, and that all is well when there is room again."""
    path = str(small_disk / "log")
    with sparklog.open(path, "rw") as log:
        log.create_topic("t")
    with stepped(Service(path, clock=clock)) as service:
        service._run_due_work("retain")
        assert service._health()[0] == []
        ballast = small_disk / "ballast"
        with open(ballast, "wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))
        service._run_due_work("retain")
        assert service._health()[0] == []  # the next trial is due in a minute
        clock.advance(60_000)
        service._run_due_work("retain")
        assert service._health()[0] == [f"{path} is offline: the service's last trial write failed"]
        found = {s.labels: s.value for s in service._samples() if s.metric.name == OFFLINE}
        assert found == {(path,): 1}
        ballast.unlink()
        clock.advance(60_000)
        service._run_due_work("retain")
        assert service._health()[0] == []
    assert not Path(path, "sparklog.probe").exists()


def test_one_log_dir_of_two(clock: ManualClock) -> None:
    """What is written to the other one says nothing about the one that fails."""
    fs = CrashFS(clock=clock)

    def fails(call: Call) -> bool:
        return call.op == "pwrite" and call.path.startswith("/two/t-1/")

    observer = Observer("/one,/two", fs=fs, clock=clock)
    with sparklog.open("/one,/two", "rw", fs=fs, clock=clock) as log:
        log.create_topic("t", 2)
        log.append("t", rows(["a"]), partition=1)
        fs.fail_at(1, Fault.IO_ERROR, times=10**9, when=fails)
        with pytest.raises(StorageUnavailableError):
            log.append("t", rows(["b"]), partition=1)
        assert offline(observer) == {"/one": 0, "/two": 1}
        log.append("t", rows(["c"]), partition=0)
        assert offline(observer) == {"/one": 0, "/two": 1}
        assert [d.failing for d in observer.observe().directories] == [False, True]
        fs.heal()
        log.append("t", rows(["d"]), partition=1)
        assert offline(observer) == {"/one": 0, "/two": 0}
