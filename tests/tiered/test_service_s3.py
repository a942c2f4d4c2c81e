"""The service against a real S3 server: a whole life, and services that are killed at work."""

from __future__ import annotations

import functools
import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sparklog
from sparklog.clock import ManualClock, system_clock
from sparklog.service import Service, erase, verify
from sparklog.service.health import examine
from sparklog.tiered.keyring import Keyring
from sparklog.tiered.layout.manifest import log_object, manifest_object
from sparklog.tiered.layout.topic_owners import PREFIX
from sparklog.tiered.object_store.object_store import ObjectStore
from sparklog.tiered.remote_segment import SegmentState
from sparklog.tiered.target import open_store
from tests import depth
from tests.tiered.archives import copies_of, readable
from tests.tiered.logs import TIERED, grow
from tests.tiered.s3 import S3Server
from tests.waiting import until

pytestmark = pytest.mark.s3
MIB = 1 << 20


@pytest.fixture
def url(s3: S3Server) -> str:
    return f"{s3.bucket()}/tier"


def check(log: sparklog.Log, url: str, s3: S3Server) -> None:
    store = open_store(url, s3.options())
    readable(log, system_clock, store)
    expected = {
        n for s in copies_of(log, system_clock) for n in (manifest_object(s), log_object(s))
    }
    assert {o.name for o in store.list() if not o.name.startswith(PREFIX)} == expected


def test_a_whole_life(tmp_path: Path, s3: S3Server, url: str) -> None:
    path, clock = str(tmp_path / "log"), ManualClock(system_clock())
    given: dict[str, Any] = {"storage_options": s3.options(), "clock": clock}
    config = TIERED | {"local.retention.bytes": "400", "retention.bytes": "2000"}
    with sparklog.open(path, "rw", clock=clock) as log:
        log.create_topic("t", 2, config=config)
        with Service(path, remote=url, **given) as service:
            for _ in range(3):
                grow(log, clock, 20)
                report = service.run_once()
                assert not report.errors
        check(log, url, s3)
        assert log.offsets("t")[0][0] > 0
        assert "s3://" in (tmp_path / "log" / "sparklog.remote").read_text()
        assert "secret" not in (tmp_path / "log" / "sparklog.remote").read_text()
        log.delete_topic("t")
        assert not Service(path, **given).run_once().errors
        left = [o.name for o in open_store(url, s3.options()).list()]
        assert all(name.startswith(PREFIX) for name in left)
    assert verify(path).ok


def test_encrypted(tmp_path: Path, s3: S3Server, url: str) -> None:
    path, clock = str(tmp_path / "log"), ManualClock(system_clock())
    ring = Keyring({"k": bytes(range(32))}, "k")
    with sparklog.open(path, "rw", clock=clock) as log:
        log.create_topic("t", config=TIERED)
        grow(log, clock, 12)
        options = s3.options()
        service = Service(path, remote=url, storage_options=options, keyring=ring, clock=clock)
        assert not service.run_once().errors
        store = open_store(url, options)
        for segment in copies_of(log, clock):
            assert b"0000" not in store.get(log_object(segment))


def _holds(store: ObjectStore, objects: int) -> bool:
    return len(store.list()) >= objects


SERVE = """
import json, sys, time
from sparklog.service import Service
path, url, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
slow = {
    "log.initial.task.delay.ms": "0",
    "remote.log.manager.copy.max.bytes.per.second": str(4 << 20),
}
with Service(path, remote=url, storage_options=options, options=slow):
    time.sleep(300)
"""


@pytest.mark.deep
def test_services_that_are_killed_at_work(tmp_path: Path, s3: S3Server, url: str) -> None:
    """kill -9, again and again: the last one finishes what they began, and nothing is left over."""
    path, options = str(tmp_path / "log"), json.dumps(s3.options())
    with sparklog.open(path, "rw") as log:
        config = {"remote.storage.enable": True, "segment.bytes": 1 * MIB}
        log.create_topic("t", 3, config=config | {"local.retention.bytes": 2 * MIB})
        block = pa.table({"value": [bytes(1000)] * 3000})
        for n in range(12):
            log.append("t", block, partition=n % 3)
        store = open_store(url, s3.options())
        for objects in depth.SERVICE_KILLS_AT:
            process = subprocess.Popen([sys.executable, "-c", SERVE, path, url, options])
            until(functools.partial(_holds, store, objects), pause_s=0.02)
            process.send_signal(signal.SIGKILL)
            process.wait()
            readable(log, system_clock, store)
        begun = [s.state for s in copies_of(log, system_clock)]
        assert SegmentState.COPY_STARTED in begun
        for _ in range(2):
            report = Service(path, remote=url, storage_options=s3.options()).run_once()
            assert not report.errors
        assert len(copies_of(log, system_clock)) >= 30
        check(log, url, s3)
    assert verify(path).ok


@pytest.mark.deep
@pytest.mark.parametrize("home", ["tier", "bucket"])
def test_an_erasure_tells_what_a_versioned_bucket_keeps(
    tmp_path: Path, s3: S3Server, home: str
) -> None:
    bucket, given = s3.bucket(versioned=True), {"storage_options": s3.options()}
    path = f"{bucket}/log" if home == "bucket" else str(tmp_path / "log")
    config = TIERED if home == "tier" else {}
    with sparklog.open(path, "rw", **(given if home == "bucket" else {})) as log:
        log.create_topic("t", config=config)
        for _ in range(4):
            log.append("t", pa.table({"key": ["ada", "bob"], "value": ["x" * 50] * 2}))
    if home == "tier":
        Service(path, remote=f"{bucket}/tier", **given).run_once()
    first = erase(path, "t", [b"ada"], **given)
    assert (first.records, first.errors, first.complete) == (4, [], False)
    (left,) = first.pending if home == "tier" else first.pending[:1]
    assert re.search(r"older versions? of objects below s3://.*NoncurrentVersionExpiration", left)
    again = erase(path, "t", [b"ada"], **given)
    assert (again.records, again.complete) == (0, False), "they are still there"
    assert s3.delete_older_versions(bucket) > 0
    last = erase(path, "t", [b"ada"], **given)
    assert (last.records, last.pending, last.complete) == (0, [], True)
    assert "erasures" not in [check.name for check in examine(path, **given).checks]
