"""Local segments that begin above the log start: whoever loads, recovers or checks such a log."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import sparklog
from sparklog.clock import ManualClock
from sparklog.common import TopicPartition
from sparklog.errors import PartitionOfflineError, UnsupportedVersionError
from sparklog.log.due_segments import RetentionConstraints, Tier
from sparklog.logdir.home import commits_of
from sparklog.logdir.ledger import LedgerWriter, ledger_bases
from sparklog.logdir.retention.segment_deletion import delete_due, raise_starts
from sparklog.service import verify
from sparklog.storage import ledger_records
from sparklog.storage.ledger_records import (
    AppendRecord,
    DropRecord,
    StartRecord,
    TopicRecord,
    decode,
    encode,
)
from sparklog.storage.log_state import LogState
from sparklog.storage.offset_ranges import OffsetRange
from sparklog.storage.topic_state import TopicState
from sparklog.testing.crashfs import CrashFS
from tests.tiered.logs import TIERED, filled, grow, value

ROOT = "/log"
ALL = RetentionConstraints(tier=Tier(((0, 10**9),)))


def shorten(log: sparklog.Log, clock: ManualClock) -> int:
    """Take the older local segments away as if they had copies; returns the local start."""
    done = delete_due(
        commits_of(log), {TopicPartition("t", 0): ALL}, now_ms=clock(), budget_ms=1000
    )
    (due,) = done.taken.values()
    assert due.local
    assert 0 < due.log_start < log.offsets("t")[0][1]
    return due.log_start


def local_start(log: sparklog.Log) -> int:
    with commits_of(log).exclusive():
        return commits_of(log).state.local_start("t", 0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log"


def test_the_log_start_stays(path: Path, clock: ManualClock) -> None:
    with filled(path, clock, 30, local_retention_bytes="800") as log:
        start = shorten(log, clock)
        assert log.offsets("t")[0] == (0, 30)
        grow(log, clock, 3)
    assert verify(path).ok
    with sparklog.open(path, "rw", clock=clock) as log:
        assert commits_of(log).state.epoch == 0  # not taken for a broker's
        assert local_start(log) == start
        assert log.offsets("t")[0] == (0, 33)


@pytest.mark.parametrize("lost", [(), ("sparklog.watermarks",)], ids=["ledger", "watermarks too"])
def test_the_log_start_stays_when_the_ledger_is_rebuilt(
    lost: tuple[str, ...], path: Path, clock: ManualClock
) -> None:
    """What a takeover as a broker's would make of it: all remote records are out of reach."""
    with filled(path, clock, 30, local_retention_bytes="800") as log:
        start = shorten(log, clock)
    shutil.rmtree(path / "__sparklog_commits-0")
    for name in ("sparklog.state", *lost):
        (path / name).unlink()
    report = verify(path, repair=True, clock=clock)
    assert report.ok, str(report)
    with sparklog.open(path, "rw", clock=clock) as log:
        assert log.offsets("t")[0] == (0, 30)
        assert local_start(log) == start
    assert verify(path).ok


def test_a_log_start_above_it_takes_its_place(path: Path, clock: ManualClock) -> None:
    with filled(path, clock, 30, local_retention_bytes="800") as log:
        start = shorten(log, clock)
        assert raise_starts(
            commits_of(log), {TopicPartition("t", 0): start - 1, TopicPartition("t", 7): 5}
        ) == {("t", 0): start - 1}
        assert local_start(log) == start
        log.delete_records("t", {0: start + 1})
        assert local_start(log) == start + 1
        with commits_of(log).exclusive():
            assert not commits_of(log).state.local_starts
        assert (
            raise_starts(
                commits_of(log), {TopicPartition("t", 0): 99, TopicPartition("gone", 0): 1}
            )
            == {}
        )
    assert verify(path).ok


def test_it_is_in_the_snapshots_of_the_ledger(
    path: Path, clock: ManualClock, monkeypatch: Any
) -> None:
    with filled(path, clock, 30, local_retention_bytes="800") as log:
        start = shorten(log, clock)
        monkeypatch.setattr(
            LedgerWriter, "wants_snapshot", property(lambda x: x.log.state.size >= 600)
        )
        grow(log, clock, 8)
        assert len(ledger_bases(commits_of(log).fs, str(path))) > 2
    with sparklog.open(path, "rw", clock=clock) as log:
        assert local_start(log) == start
    assert verify(path).ok


def test_state_keeps_it_through_its_own_snapshot() -> None:
    state = LogState()
    key, topic = TopicPartition("t", 0), TopicState("A" * 22, {}, {0: 0})
    for record in (
        TopicRecord.of("t", topic, {0: 0}),
        AppendRecord(ends={key: OffsetRange(0, 50)}),
        StartRecord(starts={}, local_starts={key: 20}),
    ):
        state.apply(record)
    again = LogState()
    again.apply(decode(encode(state.snapshot()), path="ledger", offset=0))
    assert again.local_starts == state.local_starts == {key: 20}
    again.apply(StartRecord(starts={key: 20}))
    assert not again.local_starts
    state.apply(DropRecord(topic="t", id=topic.id))
    assert not state.local_starts


def test_an_older_sparklog_says_that_it_is_too_old(monkeypatch: Any) -> None:
    """It would take the missing segments for damage."""
    raw = encode(StartRecord(starts={}, local_starts={TopicPartition("t", 0): 5}))
    monkeypatch.setattr(ledger_records, "DELETED_VERSION", 1)
    with pytest.raises(UnsupportedVersionError, match="format version 2"):
        decode(raw, path="ledger", offset=0)


def test_after_a_power_cut_segments_are_missed_from_the_local_start_on(clock: ManualClock) -> None:
    """FULL recovery accepts what is remote, and nothing else."""
    fs = CrashFS(clock=clock)
    log = filled(ROOT, clock, 30, fs=fs, local_retention_bytes="800")
    start = shorten(log, clock)
    for mode in ("strict", "all"):
        cut = fs.crash_clone(mode=mode)
        with sparklog.open(ROOT, "rw", fs=cut, clock=clock) as again:
            assert not commits_of(again).offline
            assert local_start(again) == start
            grow(again, clock, 2)
        assert verify(ROOT, fs=cut, clock=clock).ok
        # One segment less than that is damage.
        broken = fs.crash_clone(mode=mode)
        broken.unlink(f"{ROOT}/t-0/{start:020d}.log")
        with sparklog.open(ROOT, "rw", fs=broken, clock=clock) as again:
            with pytest.raises(PartitionOfflineError, match="segments of these offsets are gone"):
                grow(again, clock, 1)
            (error,) = commits_of(again).offline.values()
            assert error.first == start


def test_producers_state_outlives_the_local_segments(path: Path, clock: ManualClock) -> None:
    """It comes from the first local segment's snapshot, for its batches are elsewhere."""
    with filled(path, clock, 0, local_retention_bytes="0") as log:
        for n in range(12):
            from tests.tiered.logs import rows

            log.append("t", rows([n], clock()), partition=0, producer=(7, 0, n))
        with commits_of(log).exclusive():
            from sparklog.logdir.retention.segment_deletion import roll

            roll(commits_of(log), [TopicPartition("t", 0)])
        done = delete_due(
            commits_of(log), {TopicPartition("t", 0): ALL}, now_ms=clock(), budget_ms=1000
        )
        assert done.taken[TopicPartition("t", 0)].log_start == 12
    with sparklog.open(path, "rw", clock=clock) as log:
        again = log.append("t", rows([11], clock()), partition=0, producer=(7, 0, 11))
        assert again == {"t": {0: (11, 12)}}  # it was written before
        assert log.append("t", rows([12], clock()), partition=0, producer=(7, 0, 12)) == {
            "t": {0: (12, 13)}
        }
    assert verify(path).ok


def by_a_broker(path: Path) -> None:
    """What tells that a broker was here since our close: its own clean mark."""
    from sparklog.logdir.broker_lockout import CLEAN_SHUTDOWN

    (path / CLEAN_SHUTDOWN).write_text('{"version":0,"brokerEpoch":7}')


def test_a_brokers_visit_keeps_what_is_remote(path: Path, clock: ManualClock) -> None:
    with filled(path, clock, 30, local_retention_bytes="800") as log:
        start = shorten(log, clock)
    by_a_broker(path)
    with sparklog.open(path, "rw", clock=clock) as log:
        assert local_start(log) == start
        assert log.offsets("t")[0] == (0, 30)
        grow(log, clock, 2)
    assert verify(path).ok


def test_what_a_broker_deleted_beyond_is_gone(path: Path, clock: ManualClock) -> None:
    """Its retention took segments that nobody knows a copy of: the log begins behind them."""
    with filled(path, clock, 30, local_retention_bytes="2000") as log:
        start = shorten(log, clock)
    by_a_broker(path)
    for file in (path / "t-0").glob(f"{start:020d}.*"):
        file.unlink()
    with sparklog.open(path, "rw", clock=clock) as log:
        first = log.offsets("t")[0][0]
        assert first == local_start(log) > start
        assert not commits_of(log).state.local_starts
    assert verify(path).ok


@pytest.mark.kafka
@pytest.mark.parametrize("clean", [True, False])
def test_kafka_opens_it(path: Path, clock: ManualClock, oracle: Any, clean: bool) -> None:
    """With the log start of our checkpoint file; a broker without tiering begins later."""
    with filled(path, clock, 30, local_retention_bytes="800") as log:
        start = shorten(log, clock)
        grow(log, clock, 3)
    config = {k: v for k, v in TIERED.items() if not k.startswith("remote.")}
    opened = oracle.open(path / "t-0", clean=clean, records=True, config=config)
    assert (opened.start, opened.end) == (start, 33)
    assert [r.offset for r in opened.records] == list(range(start, 33))
    assert [r.value for r in opened.records] == [value(n) for n in range(start, 33)]
    assert opened.epochs == [(0, start)] or opened.epochs == [(0, 0)]
    assert {*opened.changed, *opened.created} <= {"leader-epoch-checkpoint"}
