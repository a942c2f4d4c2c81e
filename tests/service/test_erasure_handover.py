"""Erasures beside services of other processes: kills of either, buckets, what the log tells."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sparklog
from sparklog.clock import attempts
from sparklog.diskless import lease, upkeep
from sparklog.fs import LOCAL
from sparklog.logdir.erasures_file import erasures, unfinished_erasures
from sparklog.service import Service, erase
from sparklog.service.health import Check, Level, examine
from tests import depth
from tests.waiting import until

ALICE = b"alice@example.com"
_MAIN = "import sys; from sparklog.cli.app import run; sys.exit(run(sys.argv[1:]))"
CONFIG = {
    "segment.ms": 1, "internal.segment.bytes": 1500, "compression.type": "uncompressed",
    "remote.storage.enable": True, "local.retention.bytes": 1500,
}  # fmt: skip


def write(log: sparklog.Log, count: int) -> None:
    for n in range(count):
        keys = [b"bob", ALICE] if n % 2 else [b"bob"]
        log.append("t", pa.table({"key": keys, "value": [b"%s-%d" % (k, n) for k in keys]}))


def everything(*paths: Path) -> bytes:
    found = [Path(at) / name for path in paths for at, _, names in os.walk(path) for name in names]
    return b"".join(map(_bytes, found))


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:  # it went meanwhile
        return b""


def check_of(path: object) -> Check | None:
    return examine(str(path)).check("erasures")


def run(*given: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", _MAIN, *map(str, given)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def test_a_log_tells_of_an_erasure_until_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with sparklog.open(path, "rw") as log:
        log.create_topic("t", config={"compression.type": "uncompressed"})
        write(log, 4)
    assert check_of(path) is None
    quarantined = path / "sparklog-quarantine-20260101T000000Z-t-0-x.log"
    quarantined.write_bytes(b"?")
    assert not erase(path, "t", [ALICE]).complete
    (begun,) = unfinished_erasures(LOCAL, str(path))
    assert not erase(path, "t", [ALICE]).complete
    assert unfinished_erasures(LOCAL, str(path)) == [begun]  # since when stays
    found = check_of(path)
    assert found is not None
    assert found.level is Level.AMBER
    assert "isn't complete" in found.what
    assert str(quarantined) in found.what
    assert ALICE.decode() not in json.dumps([*erasures(LOCAL, str(path)), begun.to_dict()])
    erase(path, "t", [b"bob"], dry_run=True)
    quarantined.unlink()
    assert erase(path, "t", [b"bob"]).complete
    assert unfinished_erasures(LOCAL, str(path)) == [begun]  # another request
    assert erase(path, "t", [ALICE]).complete
    assert check_of(path) is None


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log in a store whose service listens each 0.1 s, and not three times a minute."""
    monkeypatch.setattr(lease, "BEATS", 600)
    monkeypatch.setattr(upkeep, "CHECK_MS", 50)


@pytest.mark.usefixtures("quick")
def test_in_a_bucket_a_service_hands_over_and_leads_again(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/home"
    with sparklog.open(url, "rw") as log:
        log.create_topic("t", config={"compression.type": "uncompressed"})
        write(log, 10)
        with Service(url) as leader:
            upkeep = leader._leadership.leading()
            assert upkeep is not None
            write(log, 10)
            terms = [str(upkeep.lease.holder()["since_ms"])]
            with ThreadPoolExecutor(2) as pool:
                asked = [pool.submit(erase, url, "t", [ALICE]) for _ in range(2)]
                reports = [each.result(240) for each in asked]
            for report in reports:
                assert report.complete, (report.pending, report.errors)
            assert sum(report.records for report in reports) >= 10
            until(lambda: upkeep.lease.held, "the lease", state=lambda: terms)
            assert check_of(url) is None
        assert ALICE not in everything(tmp_path)
        keys = set(log.read("t").read_all().column("key").to_pylist())
        assert keys == {b"bob"}


@pytest.mark.usefixtures("quick")
def test_in_a_bucket_what_is_left_is_told(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/home"
    with sparklog.open(url, "rw") as log:
        log.create_topic("t", config={"compression.type": "uncompressed"})
        log.create_topic("u")
        write(log, 2)
        log.delete_topic("t")
        log.create_topic("t", config={"compression.type": "uncompressed"})
        write(log, 2)
        assert not erase(url, "t", [ALICE]).complete
        found = check_of(url)
        assert found is not None
        assert "can be restored" in found.what
        log.delete_topic("t", now=True)
    assert check_of(url) is None


def test_an_upload_that_a_killed_service_left_is_given_up(tmp_path: Path) -> None:
    """However young it is; those of other partitions and logs may be at work."""
    path, tier = tmp_path / "log", tmp_path / "tier"
    with sparklog.open(path, "rw") as log:
        log.create_topic("t", config=CONFIG)
        write(log, 20)
    with Service(path, remote=f"file://{tier}") as service:
        assert not service.run_once().errors
    (directory,) = tier.glob("t-0-*")
    left, other = directory / "0.log.77-0123abcd.partial", tier / "t-1-x" / "0.log.78-0123.partial"
    other.parent.mkdir()
    for upload in (left, other):
        upload.write_bytes(ALICE)
    assert erase(path, "t", [ALICE]).complete
    assert ALICE not in everything(path, directory)
    assert other.exists()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(depth.by_depth(small=1, ci=1, all=10)))
def test_kills_of_either_side(tmp_path: Path, seed: int) -> None:
    """A command that dies has asked for nothing any more, and the service leads again.

    One whose service dies goes on as the leader. What is left in the end: nothing of Alice's.
    """
    rng = random.Random(seed)
    path, tier = tmp_path / "log", tmp_path / "tier"
    tier.mkdir()
    with sparklog.open(path, "rw") as log:
        log.create_topic("t", config=CONFIG)
        write(log, 60)
    serve: Any = ("serve", path, "--remote", f"file://{tier}", "--option",
                  "remote.log.manager.task.interval.ms=200", "--option",
                  "log.retention.check.interval.ms=500", "--option",
                  "log.initial.task.delay.ms=1")  # fmt: skip
    service = run(*serve)
    try:
        until(lambda: ALICE in everything(tier))
        for _ in range(3):
            command = run("erase", path, "--topic", "t", "--key", ALICE.decode())
            time.sleep(rng.uniform(0.2, 3))
            if rng.random() < 0.5:
                command.kill()
                command.wait()
            else:
                service.send_signal(signal.SIGKILL)
                service.wait()
                service = run(*serve)
                command.wait(240)
            if rng.random() < 0.5:
                with sparklog.open(path, "rw") as log:
                    write(log, 10)
        report = erase(path, "t", [ALICE])
        assert report.complete, (report.pending, report.errors, report.partitions)
        assert ALICE not in everything(path, tier)
        assert check_of(path) is None
        lock = str(path / "sparklog.service")
        for _ in attempts(20_000):
            if LOCAL.is_locked(lock, 0, 1):
                break
        assert LOCAL.is_locked(lock, 0, 1)
        assert service.poll() is None
    finally:
        service.terminate()
        service.wait()
    with sparklog.open(path) as log:
        rows = log.read("t").read_all()
        assert rows.num_rows
        assert set(rows.column("key").to_pylist()) == {b"bob"}
