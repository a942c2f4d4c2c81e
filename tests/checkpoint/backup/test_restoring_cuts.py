"""A restore that is cut at a file-system call: the checkpoint is there, whole, or not at all."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

import sparklog
from sparklog.checkpoint import verify
from sparklog.checkpoint.backup import archiving, restoring
from sparklog.checkpoint.backup.archiving import archive
from sparklog.checkpoint.backup.restoring import restore
from sparklog.clock import ManualClock
from sparklog.service import verify as verify_log
from sparklog.testing.crashes import Crash, crashes_now
from sparklog.testing.crashfs import CrashFS
from sparklog.testing.faults import Call
from sparklog.testing.faultstore import Bucket, FaultStore
from tests.checkpoint.conftest import Golden
from tests.checkpoint.views import load, view
from tests.crash.explore import digest
from tests.crash.harness import quick
from tests.micro_batches import commit_batch

CHECKPOINT, LOG = "/home/checkpoint", "/home/log"


def prepared(golden: Golden, clock: ManualClock) -> CrashFS:
    """A disk with a small checkpoint and its sink's log."""
    fs = CrashFS(clock=clock)
    source = golden("files")
    load(fs, source, "/checkpoint")
    query = view("/checkpoint", fs)["metadata"].decode().partition('"id":"')[2].partition('"')[0]
    with sparklog.open("/log", "rw", fs=fs, clock=clock) as log:
        log.create_topic("t", config={"internal.segment.bytes": 400})
        for batch in range(14):
            commit_batch(log, query, batch, pa.table({"value": ["x" * 90]}))
    fs.mkdir("/home")
    fs.sync_dir("/")
    return fs


def bring(fs: CrashFS, clock: ManualClock) -> None:
    restore("any", CHECKPOINT, log=LOG, threads=1, fs=fs, clock=clock)


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch, clock: ManualClock) -> None:
    store = FaultStore(Bucket(), clock)
    for module in (archiving, restoring):
        monkeypatch.setattr(module, "open_store", lambda *_: store)


@pytest.mark.parametrize("step", [83, pytest.param(7, marks=pytest.mark.slow)])
@quick()
def test_cuts(golden: Golden, stored: None, clock: ManualClock, step: int) -> None:
    fs = prepared(golden, clock)
    made = archive("/checkpoint", "any", log="/log", threads=1, fs=fs, clock=clock)
    wanted = view("/checkpoint", fs)
    images, rng = list[Crash](), random.Random(5)

    def cut(call: Call) -> None:
        if call.number % step == 0:
            images.extend(crashes_now(fs, call, rng, 1))

    fs.on_call = cut
    bring(fs, clock)
    fs.on_call = None
    images += crashes_now(fs, None, rng, 1)
    seen = set()
    for image in images:
        key = digest(image.fs), image.finished
        if key in seen:
            continue
        seen.add(key)
        there = image.fs.exists(CHECKPOINT)
        assert there or not image.finished
        if not there:
            bring(image.fs, clock)
        held = view(CHECKPOINT, image.fs)
        assert {path: data for path, data in held.items() if wanted.get(path) != data} == {}
        report = verify(CHECKPOINT, fs=image.fs)
        assert (report.findings, report.latest) == ([], made.batch), image.how
        assert verify_log(LOG, fs=image.fs, clock=clock).ok
    assert len(seen) > 600 // step
