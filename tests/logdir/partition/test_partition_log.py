"""The writer: offsets, rolls, indexes, snapshots, and Kafka's own opinion of the result."""

import os
import random
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from sparklog.clock import ManualClock
from sparklog.config import TopicConfig
from sparklog.errors import (
    DataCorruptionError,
    InvalidRequestError,
    OutOfOrderSequenceError,
    RecordTooLargeError,
)
from sparklog.format.index import OFFSET_ENTRY, TIME_ENTRY
from sparklog.format.names import index_name, log_name, snapshot_name, timeindex_name
from sparklog.fs import LOCAL
from sparklog.logdir.partition.indexes import read_entries
from sparklog.logdir.partition.partition_log import PartitionLog
from sparklog.logdir.segment_files import segment_bases
from tests.logdir.partitions import (
    T0,
    batch,
    config,
    create,
    flip,
    judged,
    marker,
    reader,
    records,
    reopen,
    sized,
    transactional,
)
from tests.oracle import Oracle

DAY_MS = 86_400_000


def bases(log: PartitionLog) -> list[int]:
    return segment_bases(LOCAL, log.path)


def entries(log: PartitionLog, base: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    offsets = read_entries(LOCAL, os.path.join(log.path, index_name(base)), OFFSET_ENTRY)
    times = read_entries(LOCAL, os.path.join(log.path, timeindex_name(base)), TIME_ENTRY)
    return offsets.tolist(), times.tolist()


def snapshots(log: PartitionLog) -> list[int]:
    return sorted(int(n[:20]) for n in os.listdir(log.path) if n.endswith(".snapshot"))


class TestAppend:
    def test_offsets_follow_and_read_only_bytes_stay(self, tmp_path: Path) -> None:
        log = create(tmp_path / "t-0", start=100)
        data = bytes(batch("a", "b", one_each=True))
        before = bytearray(data)
        assert log.append(data, 3) == (100, 102)
        assert data == before
        writable = bytearray(data)  # is patched in place, and a second try finds it no worse
        assert log.append(writable, 3) == (102, 104)
        assert log.append(writable, 3) == (104, 106)
        log.sync()
        found = records(reader(log.path).read(100, 104))
        assert found == [(100, b"a"), (101, b"b"), (102, b"a"), (103, b"b")]

    @pytest.mark.parametrize(
        "data",
        [batch("a")[:-1], batch("a", "b", one_each=True)[70:], b"rubbish" * 20],
        ids=["torn", "no batch begins it", "rubbish"],
    )
    def test_what_is_no_chunk_is_refused_and_nothing_written(
        self, tmp_path: Path, data: bytes
    ) -> None:
        log = create(tmp_path / "t-0")
        with pytest.raises(InvalidRequestError):
            log.append(data, 0)
        assert log.size_on_disk() == 0

    def test_a_batch_must_fit_a_segment(self, tmp_path: Path) -> None:
        log = create(tmp_path / "t-0", config(segment_bytes=200))
        with pytest.raises(RecordTooLargeError, match=r"segment\.bytes"):
            log.append(sized(201), 0)
        assert log.append(sized(200), 0) == (0, 1)

    def test_nothing_appended_changes_nothing(self, tmp_path: Path) -> None:
        log = create(tmp_path / "t-0")
        assert log.append(b"", 0) == (0, 0)

    def test_epoch_minus_one_is_refused_before_data(self, tmp_path: Path) -> None:
        log = create(tmp_path / "t-0")
        with pytest.raises(InvalidRequestError, match="epoch"):
            log.append(batch("a"), -1)
        assert log.size_on_disk() == 0

    def test_an_end_that_the_files_do_not_have_is_noticed(self, tmp_path: Path) -> None:
        log = create(tmp_path / "t-0")
        log.append(batch("a", "b", one_each=True), 0)
        assert reopen(log, end=5).size_on_disk() == -1
        with pytest.raises(DataCorruptionError, match="ends at offset 2"):
            reopen(log, end=5).append(batch("c"), 0)
        shorter = reopen(log, end=1)
        assert shorter.size_on_disk() != shorter.state.size


class TestRoll:
    """UnifiedLogTest.testSizeBasedLogRoll, testTimeBasedLogRoll*, LocalLogTest."""

    def test_by_size(self, tmp_path: Path) -> None:
        log = create(tmp_path / "t-0", config(segment_bytes=300))
        for _ in range(7):
            log.append(sized(100), 0)
        assert bases(log) == [0, 3, 6]

    def test_one_chunk_is_split_between_batches(self, tmp_path: Path) -> None:
        log = create(tmp_path / "t-0", config(segment_bytes=300))
        data = batch(*["x" * 20] * 7, one_each=True)
        size = len(data) // 7
        assert log.append(data, 0) == (0, 7)
        assert bases(log) == list(range(0, 7, 300 // size))
        assert [v for _, v in records(reader(log.path).read(0, 7))] == [b"x" * 20] * 7

    def test_by_event_time_not_the_wall_clock(self, tmp_path: Path) -> None:
        clock = ManualClock()
        log = create(tmp_path / "t-0", config(segment_ms=1000), clock=clock)
        log.append(batch("a", at=T0), 0)
        clock.advance(DAY_MS)
        log.append(batch("b", at=T0 + 1000), 0)
        assert bases(log) == [0]
        log.append(batch("c", at=T0 + 1001), 0)
        assert bases(log) == [0, 2]
        log.append(batch("d", at=T0), 0)  # back in time: no roll
        assert bases(log) == [0, 2]

    def test_time_is_that_of_the_first_batch_after_reopening(self, tmp_path: Path) -> None:
        log = create(tmp_path / "t-0", config(segment_ms=1000))
        log.append(batch("a", at=T0), 0)
        log.append(batch("b", at=T0 + 900), 0)
        log = reopen(log)
        log.append(batch("c", at=T0 + 1001), 0)
        assert bases(log) == [0, 2]

    def test_without_timestamps_the_segments_age_counts(self, tmp_path: Path) -> None:
        clock = ManualClock()
        log = create(tmp_path / "t-0", config(segment_ms=1000), clock=clock)
        log.append(batch("a", at=-1), 0)
        clock.advance(1000)
        log.append(batch("b", at=-1), 0)
        assert bases(log) == [0]
        clock.advance(1)
        log.append(batch("c", at=-1), 0)
        assert bases(log) == [0, 2]

    def test_jitter_brings_it_forward(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(random, "randrange", lambda bound: bound - 1)
        log = create(tmp_path / "t-0", config(segment_ms=1000, segment_jitter_ms=500))
        log.append(batch("a", at=T0), 0)
        log.append(batch("b", at=T0 + 501), 0)
        assert bases(log) == [0]
        log.append(batch("c", at=T0 + 502), 0)
        assert bases(log) == [0, 2]

    def test_compacted_logs_roll_by_the_compaction_lag_too(self, tmp_path: Path) -> None:
        options = config(cleanup_policy="compact", max_compaction_lag_ms=1000)
        log = create(tmp_path / "t-0", options)
        log.append(batch("a", at=T0, key=b"k"), 0)
        log.append(batch("b", at=T0 + 1001, key=b"k"), 0)
        assert bases(log) == [0, 1]

    @pytest.mark.parametrize(("index_bytes", "per_segment"), [(48, 4), (24, 2)])
    def test_when_an_index_is_full(
        self, tmp_path: Path, index_bytes: int, per_segment: int
    ) -> None:
        # The time index keeps a slot: 48 bytes hold 4 entries, it is full with 3 (the first
        # batch has none, so 4 batches); 24 bytes hold 2, full with 1.
        options = config(segment_index_bytes=index_bytes, index_interval_bytes=0)
        one_by_one = create(tmp_path / "t-0", options)
        for n in range(9):
            one_by_one.append(batch("v", at=T0 + n), 0)
        at_once = create(tmp_path / "t-1", options)
        at_once.append(batch(*"v" * 9, at=range(T0, T0 + 9), one_each=True), 0)
        assert bases(one_by_one) == bases(at_once) == list(range(0, 9, per_segment))

    def test_an_empty_segment_is_not_rolled(self, tmp_path: Path) -> None:
        log = create(tmp_path / "t-0")
        log.roll()
        assert bases(log) == [0]
        log.append(batch("a"), 0)
        log.roll()
        log.roll()
        assert bases(log) == [0, 1]

    def test_snapshots_are_written_for_plain_data(self, tmp_path: Path) -> None:
        log = create(tmp_path / "t-0", config(segment_bytes=100))
        for _ in range(3):
            log.append(sized(100), 0)
        assert snapshots(log) == [1, 2]
        log.close()
        assert snapshots(log) == [1, 2, 3]

    def test_snapshots_of_earlier_closes_go(self, tmp_path: Path) -> None:
        log = create(tmp_path / "t-0")
        for n in range(3):
            log.append(batch("a"), 0)
            log.close()
            assert snapshots(log) == [n + 1]


class TestIndexes:
    def test_entries_hold_last_offsets_and_earliest_maxima(self, tmp_path: Path) -> None:
        log = create(tmp_path / "t-0", config(index_interval_bytes=0))
        log.append(batch("a", "b", at=[T0 + 5, T0 + 9]), 0)
        size = log.state.size
        log.append(batch("c", "d", at=[T0 + 9, T0]), 0)  # a tie: the earlier batch keeps it
        log.append(batch("e", "f", at=[T0 + 10, T0 + 3]), 0)
        assert entries(log, 0) == ([(3, size), (5, 2 * size)], [(T0 + 9, 1), (T0 + 10, 5)])

    def test_one_call_and_many_give_the_same(self, tmp_path: Path) -> None:
        rng = np.random.default_rng(0)
        values = ["x" * int(n) for n in rng.integers(0, 300, 200)]
        times = (T0 + rng.integers(0, 10_000, 200)).tolist()
        many = create(tmp_path / "t-0", config(index_interval_bytes=500, segment_bytes=9000))
        for value, at in zip(values, times, strict=True):
            many.append(batch(value, at=at), 0)
            if rng.random() < 0.1:
                many.close()  # a final time entry comes and must go again
            if rng.random() < 0.2:
                many = reopen(many)
        once = create(tmp_path / "t-1", config(index_interval_bytes=500, segment_bytes=9000))
        once.append(batch(*values, at=times, one_each=True), 0)
        many.close()
        once.close()
        assert bases(many) == bases(once)
        for base in bases(once):
            assert entries(many, base) == entries(once, base)

    @pytest.mark.parametrize(
        "damage", ["missing", "empty", "zeros", "zero tail", "garbage", "cut", "flipped"]
    )
    def test_a_writer_mends_what_can_not_be_true(self, tmp_path: Path, damage: str) -> None:
        log = create(tmp_path / "t-0", config(index_interval_bytes=100))
        for n in range(50):
            log.append(batch("v" * 50, at=T0 + n), 0)
        log.close()
        wanted = entries(log, 0)
        for name in (index_name(0), timeindex_name(0)):
            path = tmp_path / "t-0" / name
            good = path.read_bytes()
            path.unlink()
            bad = {
                "empty": b"",
                "zeros": bytes(1000),
                "zero tail": good + bytes(999),
                "garbage": os.urandom(len(good)),
                "cut": good[:-5],
                "flipped": good[:-4] + bytes([good[-4] ^ 64]) + good[-3:],
            }
            if damage != "missing":
                path.write_bytes(bad[damage])
        log = reopen(log)
        log.append(batch("w"), 0)
        log.close()
        assert entries(log, 0)[0][: len(wanted[0])] == wanted[0]
        assert reader(log.path).offset_for_time(T0 + 40, 0, 51) == (40, T0 + 40)
        assert records(reader(log.path).read(45, 46)) == [(45, b"v" * 50)]


class TestKafkaAgrees:
    """Closed by us, opened by Kafka: it must not want to change a byte, clean or unclean."""

    OPTIONS: ClassVar = {"internal.segment.bytes": "3000", "index.interval.bytes": "200"}

    def check(self, oracle: Oracle, log: PartitionLog, end: int) -> None:
        for clean in (True, False):
            opened = oracle.open(log.path, clean=clean, config=self.OPTIONS)
            assert opened.untouched, (clean, opened.changed, opened.created, opened.removed)
            assert (opened.start, opened.end, opened.lso) == (bases(log)[0], end, end)
            assert opened.count == end - bases(log)[0]

    def small(self) -> TopicConfig:
        return config(segment_bytes=3000, index_interval_bytes=200)

    def test_many_appends_and_closes(self, tmp_path: Path, oracle: Oracle) -> None:
        rng = np.random.default_rng(7)
        log = create(tmp_path / "t-0", self.small())
        for n in range(120):
            times = (T0 + rng.integers(0, 1000, 3)).tolist()
            log.append(batch("a" * int(rng.integers(0, 90)), "b", "c", at=times), n // 50)
            if n % 25 == 24:
                log.close()
        log.close()
        assert len(bases(log)) > 3
        self.check(oracle, log, 360)
        opened = oracle.open(log.path, config=self.OPTIONS)
        assert opened.epochs == [(0, 0), (1, 150), (2, 300)]

    def test_an_empty_log_and_an_empty_active_segment(self, tmp_path: Path, oracle: Oracle) -> None:
        log = create(tmp_path / "t-0", self.small())
        log.close()
        self.check(oracle, log, 0)
        # Kafka makes and removes the snapshot of an empty log with a later start in turns.
        log = create(tmp_path / "t-1", self.small(), start=40)
        log.close()
        assert oracle.open(log.path, clean=False, config=self.OPTIONS).untouched
        assert oracle.open(log.path, config=self.OPTIONS).end == 40
        log.append(batch("a"), 0)
        log.roll()
        log.close()
        self.check(oracle, log, 41)

    def test_adopted_segments(self, tmp_path: Path, oracle: Oracle) -> None:
        log = create(tmp_path / "t-0", self.small())
        log.append(batch("first"), 0)
        for _ in range(2):
            chunk = tmp_path / "sparklog-chunk-1"
            chunk.write_bytes(batch(*["v" * 40] * 20, at=range(T0, T0 + 20), one_each=True))
            log.adopt(str(chunk), leader_epoch=2)
        assert log.append(batch("last"), 2) == (41, 42)
        log.sync()
        log.close()
        assert bases(log) == [0, 1, 21]
        self.check(oracle, log, 42)
        assert [o for o, _ in records(reader(log.path).read(0, 42))] == list(range(42))

    def test_after_an_undo(self, tmp_path: Path, oracle: Oracle) -> None:
        log = create(tmp_path / "t-0", self.small())
        log.append(batch(*["v" * 40] * 30, one_each=True), 0)
        state = log.state
        log.append(batch(*["w" * 40] * 60, at=T0 + 9, one_each=True), 1)
        log.truncate_to(state)
        log.append(batch(*["x" * 40] * 30, at=T0 + 5, one_each=True), 0)
        log.close()
        self.check(oracle, log, 60)

    def test_idempotent_producers(self, tmp_path: Path, oracle: Oracle) -> None:
        clock = ManualClock()
        log = create(tmp_path / "t-0", self.small(), clock=clock)
        now = LOCAL.mtime_ms(log.path)
        clock.now_ms = now
        for n in range(40):
            for producer_id in (5, 1 << 40, 17, 33):
                log.append(batch("v" * 20, at=now, producer=(producer_id, 0, n)), 0)
        log.close()
        self.check(oracle, log, 160)
        producers = oracle.open(log.path, config=self.OPTIONS).producers
        assert sorted((p["id"], p["last_sequence"]) for p in producers) == [
            (5, 39), (17, 39), (33, 39), (1 << 40, 39),
        ]  # fmt: skip

    def test_an_aborted_transaction(self, tmp_path: Path, oracle: Oracle) -> None:
        clock = ManualClock()
        log = create(tmp_path / "t-0", self.small(), clock=clock)
        clock.now_ms = now = LOCAL.mtime_ms(log.path)
        log.append(batch("plain", at=now), 0)
        log.append(transactional(batch("gone", at=now, producer=(7, 0, 0))), 0)
        assert log.producers.last_stable_offset() == 1
        log.append(marker(0, producer_id=7, at=now), 0)
        log.close()
        self.check(oracle, log, 3)
        assert oracle.open(log.path).aborted == [(7, 1, 2, 3)]
        found = reader(log.path).read(0, 3, isolation="read_committed")
        assert records(found) == [(0, b"plain")]


class TestAdopt:
    def test_the_segment_is_the_file_itself(self, tmp_path: Path) -> None:
        log = create(tmp_path / "t-0")
        chunk = tmp_path / "sparklog-chunk-1"
        chunk.write_bytes(batch("a", "b", one_each=True))
        inode = chunk.stat().st_ino
        assert log.adopt(str(chunk), leader_epoch=0) == (0, 2)
        assert (tmp_path / "t-0" / log_name(0)).stat().st_ino == inode
        assert not chunk.exists()
        assert snapshots(log) == []

    def test_what_does_not_fit_is_refused_and_stays(self, tmp_path: Path) -> None:
        log = create(tmp_path / "t-0", config(segment_bytes=100))
        chunk = tmp_path / "sparklog-chunk-1"
        chunk.write_bytes(batch("a", "b", one_each=True))
        with pytest.raises(InvalidRequestError, match=r"segment\.bytes"):
            log.adopt(str(chunk), leader_epoch=0)
        chunk.write_bytes(batch("a")[:-1])
        with pytest.raises(InvalidRequestError, match="is incomplete"):
            log.adopt(str(chunk), leader_epoch=0)
        assert chunk.exists()
        assert bases(log) == [0]


class TestProducers:
    """UnifiedLogTest.testDuplicateAppends and the checks of ProducerStateManagerTest."""

    def test_only_the_newest_outlives_a_close(self, tmp_path: Path) -> None:
        log = create(tmp_path / "t-0")
        sent = [batch("a", producer=(9, 0, n)) for n in range(3)]
        for data in sent:
            log.append(data, 0)
        log.close()
        log = reopen(log)
        assert judged(log, sent[2]) == (2, 3)
        with pytest.raises(OutOfOrderSequenceError):
            judged(log, sent[1])

    def test_a_crash_costs_no_knowledge(self, tmp_path: Path) -> None:
        log = create(tmp_path / "t-0", config(segment_bytes=300))
        sent = [batch("a" * 60, producer=(9, 0, n)) for n in range(8)]
        for data in sent:
            log.append(data, 0)
        log = reopen(log)  # never closed
        assert judged(log, sent[7]) == (7, 8)
        flip(os.path.join(log.path, snapshot_name(bases(log)[-1])), 20)
        assert judged(reopen(log), sent[7]) == (7, 8)

    def test_many_batches_in_one_append_are_one(self, tmp_path: Path) -> None:
        log = create(tmp_path / "t-0")
        log.append(batch("x"), 0)
        data = batch(*"abcdefghij", producer=(9, 0, 0), one_each=True)
        assert judged(log, data) is None
        assert log.append(data, 0) == (1, 11)
        assert judged(log, data) == (1, 11)

    def test_old_event_times_forget_on_load_only(self, tmp_path: Path) -> None:
        clock = ManualClock(T0 + DAY_MS)
        log = create(tmp_path / "t-0", clock=clock)
        data = batch("a", at=T0, producer=(9, 0, 5))
        log.append(data, 0)
        assert judged(log, data) == (0, 1)
        log.close()
        assert judged(reopen(log, clock=ManualClock(T0 + DAY_MS - 1)), data) == (0, 1)
        assert judged(reopen(log, clock=clock), data) is None
