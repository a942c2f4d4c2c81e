"""The service: a round over many partitions, the write lock's longest holds; a large log opened
after a crash, and forked.

python -m tests.benchmarks service [--partitions N] [--gigabytes G]
"""

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

import sparklog
from sparklog.logdir.home import commits_of
from sparklog.logdir.lock import LOCK_NAME
from sparklog.service import Service
from tests.benchmarks.table import Row, print_rows
from tests.log.forks import fork

_MB = 1 << 20


def scan_rows(scratch: Path, partitions: int) -> Iterator[Row]:
    """A round in which nothing is due: the first one, which lists, and those that follow."""
    path = str(scratch / "many")
    with sparklog.open(path, "rw") as log:
        config = {"retention.ms": "3600000", "retention.bytes": "1000000"}
        log.create_topic("t", partitions=partitions, config=config)
        table = pa.table({"value": [b"x" * 100] * partitions, "partition": range(partitions)})
        log.append("t", table.cast(pa.schema([("value", pa.binary()), ("partition", pa.int32())])))
        with Service(path, options={"log.initial.task.delay.ms": "3600000"}) as service:
            time.sleep(2.1)  # directories that changed just now are listed again
            took = []
            for _ in range(7):
                report = service.run_once()
                assert not report.worked, str(report)
                took.append(report.took_ms)
    yield Row(
        f"round over {partitions} partitions", f"{np.median(took[2:]):.0f} ms", target="< 1 s",
        beside=f"the first {took[0]:.0f} ms",
    )  # fmt: skip


def lock_rows(scratch: Path) -> Iterator[Row]:
    """Commits of 1,000 records beside a service that deletes and compacts all the time."""
    path = str(scratch / "busy")
    small = {"internal.segment.bytes": str(_MB), "file.delete.delay.ms": "0"}
    options = {
        "log.initial.task.delay.ms": "0",
        "log.retention.check.interval.ms": "50",
        "log.cleaner.backoff.ms": "20",
    }
    rows = pa.table(
        {"key": [b"%04d" % (n % 200) for n in range(1000)], "value": [b"v" * 300] * 1000}
    )
    held: list[float] = []
    with sparklog.open(path, "rw") as log:
        log.create_topic("old", config=small | {"retention.bytes": str(4 * _MB)})
        log.create_topic("keys", config=small | {"cleanup.policy": "compact"})
        with Service(path, options=options) as service:
            work = service._work

            def noting(rounds, wanted, report):  # type: ignore[no-untyped-def]
                work(rounds, wanted, report)
                held.extend(report.locked_ms)

            service._work = noting  # type: ignore[method-assign]
            waits = []
            for n in range(600):
                began = time.perf_counter()
                log.append("old" if n % 2 else "keys", rows)
                waits.append((time.perf_counter() - began) * 1000)
    yield Row(
        "write lock held by the service", f"p50 {np.percentile(held, 50):.1f}, "
        f"p99 {np.percentile(held, 99):.1f} ms ({len(held)} steps)", target="p99 < 50 ms",
        beside=f"commits beside it: p50 {np.median(waits):.1f}, "
        f"p99 {np.percentile(waits, 99):.1f} ms",
    )  # fmt: skip


_WRITER = """
import sys, time, sparklog, pyarrow as pa
log = sparklog.open(sys.argv[1], "rw")
log.create_topic("t", partitions=4, config={"segment.bytes": "268435456"})
rows = pa.table({"value": [bytes([65 + n % 26]) * 1000 for n in range(65536)]})
for n in range(int(float(sys.argv[2]) * 1e9 / 66e6)):
    log.append("t", rows, partition=n % 4)
print("written", flush=True)
time.sleep(600)
"""


def reopen_rows(scratch: Path, gigabytes: float) -> Iterator[Row]:
    """The next open after a kill -9, and after a power cut (as the lock page of another boot)."""
    path = str(scratch / "large")
    child = subprocess.Popen(
        [sys.executable, "-c", _WRITER, path, str(gigabytes)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "written\n"
    child.kill()
    child.wait()
    child.stdout.close()
    size = sum(f.stat().st_size for f in Path(path).rglob("*.log"))
    began = time.perf_counter()
    log = sparklog.open(path, "rw")
    took = time.perf_counter() - began
    yield Row(f"open {size / 1e9:.0f} GB after kill -9", f"{took * 1000:.0f} ms", target="< 100 ms")
    log.close()
    log = sparklog.open(path, "rw")
    os.makedirs(f"{path}/sparklog_open", exist_ok=True)
    with open(f"{path}/{LOCK_NAME}", "r+b") as page:
        page.write(b"\0" * 4096)
    for directory in Path(path).glob("recovery-point-offset-checkpoint"):
        directory.unlink()
    commits_of(log).manager.forget()
    began = time.perf_counter()
    with commits_of(log).exclusive():
        took = time.perf_counter() - began
    yield Row(
        f"recover {size / 1e9:.0f} GB after a power cut",
        f"{took:.2f} s, {size / took / 1e9:.1f} GB/s",
        beside="all of it scanned; Kafka's: see the engine's table",
    )  # fmt: skip
    log.close()


def fork_rows(scratch: Path) -> Iterator[Row]:
    """Forks of the log that `reopen_rows` has left, to just before its last commits."""
    path = str(scratch / "large")
    with sparklog.open(path) as log:
        wanted = {p: end - 10_000 for p, (_, end) in log.offsets("t").items()}
    took = []
    for n in range(5):
        began = time.perf_counter()
        forked = fork(path, scratch / f"fork{n}", offsets={"t": wanted})
        took.append(time.perf_counter() - began)
    size = forked.linked_bytes + forked.copied_bytes
    yield Row(
        f"fork of a {size / 1e9:.0f} GB log", f"{np.median(took):.2f} s", target="< 1 s",
        beside=f"{forked.copied_bytes / 1e6:.0f} MB copied and synced, the rest linked",
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--gigabytes", type=float, default=10)
    given, _ = parser.parse_known_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    scratch = Path(tempfile.mkdtemp(prefix="sparklog-bench-"))
    try:
        print_rows("Service, locks", lock_rows(scratch))
        print_rows("Service, rounds", scan_rows(scratch, given.partitions))
        print_rows("Service, opening", reopen_rows(scratch, given.gigabytes))
        print_rows("Service, forking", fork_rows(scratch))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
