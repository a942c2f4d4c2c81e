"""An erasure beside a service that gets on with its work between two pieces of it."""

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sparklog
from sparklog.clock import ManualClock, pause
from sparklog.fs import LOCAL
from sparklog.logdir.segment_files import segment_bases
from sparklog.service import ErasureReport, Service, leadership
from tests.service.logs import told
from tests.service.test_erasure import (
    ALICE,
    LOCAL_ONLY,
    TIERED,
    archive_of,
    erased,
    everything,
    rows,
    service,
    tiered,
    write,
)
from tests.tiered.buckets import DictStore

HOUR_MS = 3_600_000
TIER_THREAD = "sparklog-tier"  # of a service
ONE_THREAD = {"remote.log.manager.copier.thread.pool.size": "1"}


class TellingStore(DictStore):
    """Says of each segment that is put; `told` comes before it."""

    told: Callable[[str], None] | None = None

    def put(self, name: str, data: bytes) -> None:
        if self.told is not None and name.endswith(".log"):
            self.told(name)
        super().put(name, data)


class Timer:
    """The time of who borrows the lease: it moves on with his pauses, but for while it `stands`."""

    def __init__(self, stands: Callable[[], bool]) -> None:
        self.now_ms, self._stands = 1e6, stands

    def __call__(self) -> float:
        return self.now_ms

    def pause(self, ms: float) -> None:
        if self._stands():
            pause(20)
        else:
            pause(1)
            self.now_ms += ms


@pytest.mark.parametrize("own", [False, True], ids=["another process", "its own process"])
@pytest.mark.deep
def test_a_service_expires_segments_before_the_erasure_ends(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, own: bool
) -> None:
    """Amid the erasure another topic's retention comes due; its disk must not wait for the end."""
    path, store, puts = tmp_path / "log", TellingStore(), itertools.count()
    tiered(path, clock, store, TIERED | {"retention.ms": -1})
    with sparklog.open(path, "rw", clock=clock) as log:
        log.create_topic("u", config=LOCAL_ONLY | {"retention.ms": 100 * HOUR_MS})
        for _ in range(12):
            log.append("u", pa.table({"key": [b"k"], "value": [bytes(500)]}))
        told(log)

    def segments() -> int:
        return len(segment_bases(LOCAL, str(path / "u-0")))

    many = segments()
    assert many > 3
    awaited, seen = False, list[int]()

    def is_due() -> bool:
        return awaited and segments() == many

    timer = Timer(is_due)
    monkeypatch.setattr(leadership, "monotonic_ms", timer)
    monkeypatch.setattr(leadership, "pause", timer.pause)

    def tell(name: str) -> None:
        nonlocal awaited
        if threading.current_thread().name == TIER_THREAD:
            return  # the service copies what the erasure would have: first or last
        seen.append(segments())
        if next(puts) == 2:
            clock.advance(200 * HOUR_MS)
            timer.now_ms += leadership.HOLD_MS
            awaited = True

    def erase(leader: Service) -> tuple[ErasureReport, int]:
        if own:
            report = leader.erase("t", [ALICE], wait_ms=1e9)
        else:
            report = erased(path, clock, store, wait_ms=1e9, options=ONE_THREAD)
        return report, segments()

    with service(path, clock, store) as leader, ThreadPoolExecutor(1) as pool:
        leader.tick()
        store.told = tell
        report, left = pool.submit(erase, leader).result(240)
    assert report.complete, (report.pending, report.errors, report.partitions)
    assert seen[:3] == [many] * 3
    assert all(count < many for count in seen[3:])  # before the very next piece
    assert left < many
    assert b"secret-of-alice" not in b"".join(store.objects.values())


def every_piece(monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], object]) -> list[int]:
    """Let each piece be the last of its hold, and do something in between; counts how often."""
    done: list[int] = []

    def rest(self: leadership.BorrowedLease) -> None:
        if self._ended_ms:
            done.append(len(done))
            meanwhile()

    monkeypatch.setattr(leadership, "HOLD_MS", 0)
    monkeypatch.setattr(leadership.BorrowedLease, "pause_between_loans", rest)
    return done


@pytest.mark.parametrize("what", ["retain", "run_once"])
@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_what_a_service_makes_meanwhile_is_looked_at(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, what: str, policy: str
) -> None:
    """Local segments go before they were copied again: then old copies are all that is left."""
    path, store = tmp_path / "log", DictStore()
    config: dict[str, Any] = {
        "cleanup.policy": policy, "local.retention.bytes": -2, "retention.ms": -1,
        "local.retention.ms": 100 * HOUR_MS,
    }  # fmt: skip
    tiered(path, clock, store, TIERED | config)
    with archive_of(store, None) as log:
        before = rows(log)
    many = len(segment_bases(LOCAL, str(path / "t-0")))

    def meanwhile() -> None:
        clock.advance(200 * HOUR_MS)
        report = getattr(Service(path, clock=clock, opening=lambda url, options: store), what)()
        assert not report.errors, report.errors
        assert not report.standing_by, report.standing_by

    done = every_piece(monkeypatch, meanwhile)
    report = erased(path, clock, store, options=ONE_THREAD)
    assert report.complete, (report.pending, report.errors, report.partitions)
    assert done
    if policy == "delete":
        assert len(segment_bases(LOCAL, str(path / "t-0"))) < many
        with archive_of(store, None) as log:
            found = rows(log)
            kept = [row for row in before if row[1] != ALICE]
            assert found[: len(kept)] == kept[: len(found)]
        assert report.records == 24
    assert ALICE not in everything(path, store)


def test_records_that_are_written_meanwhile_stay(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are new ones, and each step of the erasure ends, however much comes."""
    path, store = tmp_path / "log", DictStore()
    tiered(path, clock, store)
    with sparklog.open(path, "rw", clock=clock) as log:
        end = log.offsets("t")[0][1]

        def meanwhile() -> None:
            write(log, clock, 12)
            service(path, clock, store).run_once()

        done = every_piece(monkeypatch, meanwhile)
        report = erased(path, clock, store, options=ONE_THREAD)
        assert report.complete, (report.pending, report.errors, report.partitions)
        assert done
        service(path, clock, store).run_once()
    with archive_of(store, None) as archive:
        assert min(row[0] for row in rows(archive) if row[1] == ALICE) >= end
