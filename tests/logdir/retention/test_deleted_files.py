"""Deleted files wait from their rename on, whoever comes to unlink them, unless a disk is full."""

from __future__ import annotations

import pyarrow as pa
import pytest

import sparklog
from sparklog.clock import ManualClock
from sparklog.errors import StorageUnavailableError
from sparklog.logdir.home import open_log
from sparklog.service import Service
from sparklog.testing.crashfs import CrashFS

DELAY_MS = 60_000


@pytest.fixture
def fs(clock: ManualClock) -> CrashFS:
    fs = CrashFS()
    fs.disk.clock = clock
    return fs


def make(fs: CrashFS, clock: ManualClock, **options: object) -> sparklog.Log:
    log = open_log("/log", mode="rw", fs=fs, clock=clock, options=options)
    log.create_topic(
        "t",
        config={"internal.segment.bytes": 400, "retention.bytes": 0, "retention.ms": -1},
    )
    for n in range(12):
        log.append("t", pa.table({"value": [f"{n:0100d}".encode()]}))
    return log


def deleted(fs: CrashFS) -> list[str]:
    return [name for name in fs.listdir("/log/t-0") if name.endswith(".deleted")]


def test_a_second_service_goes_on_counting(fs, clock):
    make(fs, clock).close()
    Service("/log", fs=fs, clock=clock).retain()
    waiting = deleted(fs)
    assert waiting
    clock.advance(DELAY_MS - 1)
    assert Service("/log", fs=fs, clock=clock).run_once().purged == []
    assert deleted(fs) == waiting
    clock.advance(1)
    plan = Service("/log", fs=fs, clock=clock).run_once(dry_run=True)
    assert plan.purged
    assert deleted(fs) == waiting
    done = Service("/log", fs=fs, clock=clock).run_once()
    assert sorted(done.purged) == sorted(plan.purged)
    assert not deleted(fs)


def test_who_opens_the_log_for_writing_unlinks_what_is_due(fs, clock):
    log = make(fs, clock)
    Service("/log", fs=fs, clock=clock).retain()
    clock.advance(DELAY_MS - 1)
    open_log("/log", mode="rw", fs=fs, clock=clock).close()
    assert deleted(fs)
    clock.advance(1)
    open_log("/log", mode="rw", fs=fs, clock=clock).close()
    assert not deleted(fs)
    assert log.read("t").read_all().num_rows == 0
    log.close()


def test_a_time_of_change_that_is_still_to_come_counts_from_now(fs, clock):
    make(fs, clock).close()
    clock.advance(10 * DELAY_MS)
    Service("/log", fs=fs, clock=clock).retain()
    clock.advance(-5 * DELAY_MS)  # the machine's clock was set back
    with Service("/log", fs=fs, clock=clock) as service:
        service.tick()  # leads from now on, whenever the service's threads get the processor
        assert deleted(fs)
        clock.advance(DELAY_MS)
        service.tick()
        assert not deleted(fs)


def test_on_a_full_disk_nothing_waits(fs, clock):
    log = make(fs, clock)
    Service("/log", fs=fs, clock=clock).retain()
    held = sum(fs.size(f"/log/t-0/{name}") for name in deleted(fs))
    assert held
    real = fs.free_bytes

    def free(path: str) -> int:
        return real(path) - (held if deleted(fs) else 0)

    fs.free_bytes = free  # type: ignore[method-assign]
    fs.disk.free_bytes = (4 << 20) + 2000  # enough for a commit, but for what waits
    log.append("t", pa.table({"value": [b"more"]}))
    assert not deleted(fs)
    fs.disk.free_bytes = 1000
    with pytest.raises(StorageUnavailableError, match="1000 bytes free"):
        log.append("t", pa.table({"value": [b"no room"]}))
    log.close()


@pytest.mark.parametrize("how", ["open", "round"])
def test_below_the_floor_opening_and_rounds_free_at_once(fs, clock, how):
    log = make(fs, clock)
    Service("/log", fs=fs, clock=clock).retain()
    assert deleted(fs)
    fs.disk.free_bytes = 1 << 20
    if how == "open":
        open_log("/log", mode="rw", fs=fs, clock=clock).close()
    else:
        service = Service("/log", fs=fs, clock=clock)
        service._open()
        service.tick()
        service.close()
    assert not deleted(fs)
    log.close()
