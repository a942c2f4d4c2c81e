"""The service on a real directory, with a clock of the test's own."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog.clock import ManualClock
from sparklog.errors import (
    InvalidRequestError,
    LogReplacedError,
    OffsetOutOfRangeError,
    StorageUnavailableError,
)
from sparklog.logdir.home import commits_of
from sparklog.logdir.lease import NAME, ServiceLease
from sparklog.service import Service, log_dir_cleaner
from tests.service.logs import told
from tests.waiting import until

MINUTE = 60_000
SMALL = {"internal.segment.bytes": "400", "retention.ms": "-1"}


@contextmanager
def stepped(service: Service) -> Iterator[Service]:
    """Open the service without its threads: the test calls `tick`."""
    service._open()
    try:
        yield service
    finally:
        service.close()


def rows(values: list[str], keys: list[str] | None = None, at_ms: int | None = None) -> pa.Table:
    table = {"value": [v.encode() for v in values]}
    if keys is not None:
        table["key"] = [k.encode() for k in keys]
    made = pa.table(table)
    if at_ms is not None:
        stamps = pa.array([at_ms] * len(values), pa.timestamp("ms", tz="UTC"))
        made = made.append_column("timestamp", stamps)
    return made


def values(log: sparklog.Log, topic: str = "t") -> list[str]:
    return [v.decode() for b in log.read(topic) for v in b.column("value").to_pylist()]


def filled(path: str, clock: ManualClock, count: int = 12, **config: str) -> sparklog.Log:
    log = sparklog.open(path, "rw", clock=clock)
    log.create_topic("t", config=SMALL | {k.replace("_", "."): v for k, v in config.items()})
    told(log)
    for n in range(count):
        log.append("t", rows([f"{n:04d}".ljust(100, ".")]))
        clock.advance(1000)
    return log


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What sparklog warned of: threads of other libraries may say something, too."""
    return [
        r.getMessage() for r in caplog.records
        if r.name.startswith("sparklog") and r.levelno >= logging.WARNING
    ]  # fmt: skip


def names(path: str, suffix: str) -> list[str]:
    return sorted(n for n in os.listdir(f"{path}/t-0") if n.endswith(suffix))


# --- retention ---------------------------------------------------------------------------------


def test_a_record_goes_by_roll_retention_check_and_delay(path, clock):
    """Not later than retention + one check + file.delete.delay.ms, and not before."""
    log = filled(path, clock, 0, retention_ms=str(10 * MINUTE), file_delete_delay_ms="60000")
    options = {"log.initial.task.delay.ms": "0", "log.retention.check.interval.ms": str(MINUTE)}
    with log, stepped(Service(path, options=options, clock=clock)) as service:
        log.append("t", rows(["old"]))
        born = clock()
        gone = unlinked = None
        while unlinked is None:
            service.tick()
            if gone is None and values(log) == []:
                gone = clock() - born
                assert names(path, ".log.deleted")
            if gone is not None and not names(path, ".deleted"):
                unlinked = clock() - born
            assert clock() - born < 20 * MINUTE
            clock.advance(1000)
        assert 10 * MINUTE < gone <= 11 * MINUTE
        assert MINUTE <= unlinked - gone <= MINUTE + 1000
        log.append("t", rows(["new"]))
        assert values(log) == ["new"]
        assert log.offsets("t")[0] == (1, 2)


def test_a_log_that_is_replaced_under_a_service(path, clock, caplog):
    """It waits while none is there, makes none, and goes on in what comes back or instead."""
    filled(path, clock, 3).close()
    away, other = f"{path}-away", f"{path}-other"
    with sparklog.open(other, "rw", clock=clock) as log:
        log.create_topic("another")
    options = {"log.initial.task.delay.ms": "0"}
    with stepped(Service(path, options=options, clock=clock)) as service:

        def ticked() -> list[str]:
            clock.advance(60 * MINUTE)
            service.tick()
            return service.last_report.errors

        assert ticked() == []
        os.rename(path, away)
        os.mkdir(path)
        for _ in range(2):
            with pytest.raises(LogReplacedError, match="unmounted"):
                service.tick()
        assert os.listdir(path) == []
        os.rmdir(path)
        os.rename(away, path)
        assert ticked() == []
        os.rename(path, away)
        shutil.copytree(other, path)
        ticked()
        assert "contains another log" in caplog.text
        assert ticked() == []
        assert list(service._leadership.upkeep.log.topics()) == ["another"]


def test_a_step_that_fails_while_the_service_closes_is_no_error(path, clock, caplog):
    """At the interpreter's exit the store's client is closed before the service."""
    filled(path, clock, 1).close()
    begun, closing = threading.Event(), threading.Event()

    def now() -> int:
        if threading.current_thread().name.startswith("sparklog-"):
            begun.set()
            closing.wait()
            raise StorageUnavailableError("no request succeeds any more")
        return clock()

    service = Service(path, clock=now)
    service.start()
    begun.wait()
    close = threading.Thread(target=service.close)
    close.start()
    until(service._stop.is_set)
    closing.set()
    close.join()
    assert warned(caplog) == []


def test_size_retention_and_its_report(path, clock):
    with filled(path, clock, retention_bytes="800") as log:
        before = len(names(path, ".log"))
        plan = Service(path, clock=clock).run_once(dry_run=True)
        assert plan.dry_run
        assert len(names(path, ".log")) == before
        assert "would be deleted" in str(plan)
        report = Service(path, clock=clock).run_once()
        assert [d.segments for d in report.deleted] == [d.segments for d in plan.deleted]
        assert {e.rule for d in report.deleted for e in d.segments} == {"retention.bytes"}
        start, end = log.offsets("t")[0]
        assert start == report.deleted[0].log_start > 0
        assert values(log) == [f"{n:04d}".ljust(100, ".") for n in range(start, end)]
        json.dumps(report.to_dict())
        assert Service(path, clock=clock).run_once().deleted == []


A_WEEK = {"internal.segment.bytes": "400", "retention.ms": "604800000"}


def backfilled(path, clock):
    """Events of 2013 under a week's retention: due as soon as they are written."""
    log = sparklog.open(path, "rw", clock=clock)
    log.create_topic("t", config=A_WEEK)
    for _ in range(6):
        log.append("t", rows(["x" * 100], at_ms=1_357_000_000_000))
    return log


def test_a_first_deletion_is_announced_a_round_ahead(path, clock, caplog):
    """Said with numbers and with the way out, by one process; done by the next one."""
    with backfilled(path, clock) as log:
        with caplog.at_level(logging.INFO, "sparklog.service"):
            assert Service(path, clock=clock).run_once(dry_run=True).deleted
        assert "offsets [0, 6) would be deleted" in caplog.text
        assert not warned(caplog)  # a plan is returned
        caplog.clear()
        report = Service(path, clock=clock).run_once()
        (said,) = warned(caplog)
        assert "offsets [0, 6) are due" in said
        assert "(100% of the topic)" in said
        assert "retention.ms=-1" in said
        assert "The next round deletes them" in said
        assert not report.deleted
        assert "the next round deletes them" in "".join(report.notes)
        assert log.offsets("t")[0] == (0, 6)
        report = Service(path, clock=clock).run_once()
        assert sum(e.bytes for d in report.deleted for e in d.segments) > 600
        assert len(warned(caplog)) == 1
        for _ in range(3):  # from now on retention goes by itself
            log.append("t", rows(["x" * 100], at_ms=1_357_000_000_000))
        assert Service(path, clock=clock).run_once().deleted


def test_who_asks_for_the_deletion_gets_it_at_once(path, clock, caplog):
    with backfilled(path, clock) as log, caplog.at_level(logging.WARNING, "sparklog.service"):
        assert Service(path, clock=clock).retain().deleted
        assert "are deleted now" in caplog.text
        assert log.offsets("t")[0] == (6, 6)


def test_what_lies_below_the_log_start_is_not_put_off(path, clock):
    with backfilled(path, clock) as log:
        log.delete_records("t", {0: 4})
        (gone,) = Service(path, clock=clock).run_once().deleted
        assert {e.rule for e in gone.segments} == {"log.start.offset"}
        assert log.offsets("t")[0] == (4, 6)


def test_what_was_deleted_by_hand_is_not_announced(path, clock, caplog):
    """Nothing keeps it, and the warning is for what retention takes first."""
    config = {"internal.segment.bytes": "400", "retention.ms": "-1"}
    with sparklog.open(path, "rw", clock=clock) as log:
        log.create_topic("t", config=config)
        for _ in range(6):
            log.append("t", rows(["x" * 100]))
        log.delete_records("t", {0: 4})
        service = Service(path, clock=clock)
        with caplog.at_level(logging.WARNING, "sparklog.service"):
            report = service.run_once()
            assert {e.rule for d in report.deleted for e in d.segments} == {"log.start.offset"}
            assert warned(caplog) == []
            log.delete_records("t", {0: 5})
            log.alter_topic("t", config={"retention.bytes": "0"})
            assert service.run_once().deleted == []
    (said,) = warned(caplog)
    assert "retention.bytes=-1" in said
    assert "log.start.offset" not in said


def test_a_reader_that_has_a_segment_open_finishes(path, clock):
    with filled(path, clock, 40, retention_ms="1") as log:
        reader = iter(log.read("t", columns=["offset"]))
        first = next(reader)
        report = Service(path, clock=clock).run_once(now_ms=clock() + MINUTE)
        assert report.deleted
        rest = [o for b in (first, *_until_gone(reader)) for o in b.column("offset").to_pylist()]
        assert rest == list(range(len(rest)))
        with pytest.raises(OffsetOutOfRangeError):
            list(log.read("t", start={0: 0}))


def _until_gone(reader: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    try:
        yield from reader
    except OffsetOutOfRangeError:
        return


def test_the_deleted_wait_for_their_delay(path, clock):
    with filled(path, clock, retention_ms="1", file_delete_delay_ms="5000"):
        service = Service(path, options={"log.initial.task.delay.ms": "0"}, clock=clock)
        with stepped(service):
            clock.advance(MINUTE)
            service.tick()
            waiting = names(path, ".log.deleted")
            assert waiting
            clock.advance(4999)
            service.tick()
            assert names(path, ".log.deleted") == waiting
            clock.advance(1)
            service.tick()
            assert not names(path, ".deleted")


def test_what_a_dead_service_left_is_unlinked_by_the_next(path, clock):
    with filled(path, clock, retention_ms="1", file_delete_delay_ms="5000"):
        Service(path, clock=clock).run_once(now_ms=clock() + MINUTE)
        assert names(path, ".log.deleted")
        options = {"log.initial.task.delay.ms": "0"}
        with stepped(Service(path, options=options, clock=clock)) as service:
            service.tick()
            clock.advance(5000)
            service.tick()
            assert not names(path, ".deleted")


def test_idle_segments_are_closed_when_asked(path, clock):
    with filled(path, clock, 2, segment_idle_ms="60000") as log:
        (segment,) = Path(path, "t-0").glob("*.log")  # files carry the machine's time
        now = segment.stat().st_mtime_ns // 1_000_000
        assert not Service(path, clock=clock).run_once(now_ms=now + 50_000).rolled
        report = Service(path, clock=clock).run_once(now_ms=now + 70_000)
        assert report.rolled == [("t", 0, 0)]
        assert names(path, ".log") == [f"{0:020d}.log", f"{2:020d}.log"]
        assert not Service(path, clock=clock).run_once(now_ms=now + 200_000).rolled  # it is empty
        log.append("t", rows(["more"]))
        assert len(values(log)) == 3


def test_a_full_disk_calls_for_retention_at_once(path, clock, monkeypatch):
    options = {"log.min.free.bytes": "1000000000000000", "log.initial.task.delay.ms": "600000"}
    with (
        filled(path, clock, retention_ms="1") as log,
        stepped(Service(path, options=options, clock=clock)) as service,
    ):
        service._due = dict.fromkeys(service._due, clock() + 600_000.0)
        service.tick()
        assert log.offsets("t")[0] == (12, 12)


def test_epochs_can_be_asked(path, clock):
    with filled(path, clock, 3) as log:
        latest = commits_of(log).state.epoch
        assert log.end_offset_for_epoch("t", 0, latest) == (latest, 3)
        assert log.end_offset_for_epoch("t", 0, latest + 1) == (-1, -1)
        assert log.end_offset_for_epoch("t", 0, -1) == (-1, -1)


# --- cleaning ----------------------------------------------------------------------------------


def compacted(path: str, clock: ManualClock) -> sparklog.Log:
    log = sparklog.open(path, "rw", clock=clock)
    log.create_topic("t", config=SMALL | {"cleanup.policy": "compact"})
    for n in range(30):
        log.append("t", rows([f"{n:04d}".ljust(60, ".")], [f"k{n % 3}"]))
        clock.advance(1000)
    return log


@pytest.mark.parametrize("how", ["before", "under way"])
def test_a_topic_that_is_deleted_meanwhile_and_made_again_is_cleaned(path, clock, monkeypatch, how):
    """It is no error of the round, and nothing that the next topic of that name would pay for."""
    with compacted(path, clock) as log, stepped(Service(path, clock=clock)) as service:
        clean = log_dir_cleaner.clean_partition

        def deleted(commits, *given, **named):
            log.delete_topic("t")
            if how == "under way":
                raise FileNotFoundError("its files")
            return clean(commits, *given, **named)

        with monkeypatch.context() as patch:
            patch.setattr(log_dir_cleaner, "clean_partition", deleted)
            report = service.run_once()
        assert not report.errors
        assert not report.cleaned
        assert not service._leadership.upkeep.uncleanable
        log.create_topic("t", config=SMALL | {"cleanup.policy": "compact"})
        for n in range(30):
            log.append("t", rows([f"{n:04d}".ljust(60, ".")], [f"k{n % 3}"]))
            clock.advance(1000)
        assert [done.topic for done in service.run_once().cleaned] == ["t"]


@pytest.mark.parametrize("how", ["here", "two threads", "elsewhere"])
def test_compaction(path, clock, how):
    given = {"options": {"log.cleaner.threads": "2"}} if how == "two threads" else {}
    if how == "elsewhere":
        given = {"map": lambda function, jobs: [function(job) for job in jobs]}
    with compacted(path, clock) as log:
        plan = Service(path, clock=clock, **given).run_once(dry_run=True)
        assert [c.dirt.cleanable_bytes > 0 for c in plan.cleaned] == [True]
        assert len(values(log)) == 30
        report = Service(path, clock=clock, **given).run_once()
        assert report.cleaned[0].bytes_after < report.cleaned[0].bytes_before
        left = [v.rstrip(".") for v in values(log)]
        assert len(left) < 12
        assert left[-3:] == ["0027", "0028", "0029"]
        assert not Service(path, clock=clock, **given).run_once().cleaned


def test_a_stopping_service_leaves_a_cleaning_whole(path, clock):
    with compacted(path, clock) as log:
        service = Service(path, clock=clock)
        service._stop.set()
        report = service.run_once()
        assert "is stopping" in report.standing_by
        assert len(values(log)) == 30
        assert not names(path, ".cleaned")


# --- who may do what -----------------------------------------------------------------------------


def test_a_second_service_says_who_works_and_takes_over(path, clock, caplog):
    filled(path, clock, 1).close()
    options = {"log.initial.task.delay.ms": "0"}
    first, second = (Service(path, options=options, clock=clock) for _ in range(2))
    first._open()
    first.tick()
    with stepped(second):
        with caplog.at_level(logging.WARNING, "sparklog.service"):
            second.tick()
            second.tick()
        (said,) = [r.getMessage() for r in caplog.records if "standing by" in r.getMessage()]
        assert f"process {os.getpid()}" in said
        assert second.run_once().standing_by
        first.close()
        second.tick()
        assert second.last_report is not None
        assert not second.run_once().standing_by


def test_a_killed_service_is_followed(path, clock):
    filled(path, clock, 1).close()
    code = (
        "import sys, time; from sparklog.service import Service\n"
        f"s = Service({path!r}, options={{'log.initial.task.delay.ms': '0'}}); s.start()\n"
        "while s.last_report is None: time.sleep(0.01)\n"
        "print('working', flush=True); time.sleep(300)"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "working\n"
        assert f"process {child.pid}" in Service(path, clock=clock).run_once().standing_by
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
    assert not Service(path, clock=clock).run_once().standing_by


def test_a_stalled_service_stands_back(path, clock):
    """Its lease file was replaced (a resumed machine image): it touches nothing any more."""
    with filled(path, clock, retention_ms="1") as log:
        service = Service(path, options={"log.initial.task.delay.ms": "0"}, clock=clock)
        with stepped(service):
            service.tick()
            clock.advance(MINUTE * 10)
            log.append("t", rows(["x"] * 5))
            clock.advance(MINUTE * 10)
            os.rename(f"{path}/{NAME}", f"{path}/{NAME}.old")
            other = ServiceLease(sparklog.fs.LOCAL, clock, path)
            assert other.acquire()
            before = names(path, "")
            service.tick()
            assert service.last_report is not None
            assert "taken over" in service.last_report.standing_by
            assert names(path, "") == before
            other.release()



def test_options_are_checked(path):
    with pytest.raises(InvalidRequestError, match=r"log\.cleaner\.thread"):
        Service(path, options={"log.cleaner.thread": "1"})
    with pytest.raises(InvalidRequestError, match=r"log\.cleaner\.threads=-1"):
        Service(path, options={"log.cleaner.threads": "-1"})
    Service(path, options={"flush": "none", "log.retention.hours": "1"})  # those of the log


def test_threads_work_and_stop(path):
    """The real clock: what is due is done without a tick, and close ends both threads.

    Only the offsets are looked at: a read would race with the deletion of what it reads.
    """
    before = set(threading.enumerate())
    with sparklog.open(path, "rw") as log:
        log.create_topic("t", config=SMALL | {"retention.ms": "1", "file.delete.delay.ms": "0"})
        options = {"log.initial.task.delay.ms": "0", "log.retention.check.interval.ms": "20"}
        with Service(path, options=options) as service:
            for n in range(8):
                log.append("t", rows([str(n) * 100]))
            until(lambda: log.offsets("t")[0] == (8, 8), state=lambda: log.offsets("t"))
        assert service.last_report is not None
        assert not {t for t in threading.enumerate() if t.name.startswith("sparklog-")} - before


def test_a_partition_that_is_gone_leaves_retention_to_the_others(path, clock, caplog):
    with sparklog.open(path, "rw", clock=clock) as log:
        log.create_topic("t", partitions=2, config=SMALL | {"retention.ms": "1"})
        told(log)
        for n in range(20):
            log.append("t", rows(["x" * 100]), partition=n % 2)
        clock.advance(MINUTE)
        os.rename(f"{path}/t-0", str(Path(path).parent / "moved"))
        report = Service(path, clock=clock).run_once()
        assert any("t-0" in said for said in [*report.errors, caplog.text])  # offline, and told so
        assert [d.partition for d in report.deleted] == [1]
        os.rename(str(Path(path).parent / "moved"), f"{path}/t-0")
        assert [d.partition for d in Service(path, clock=clock).run_once().deleted] == [0]
