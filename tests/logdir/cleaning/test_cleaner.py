"""Kafka's LogCleanerTest and LogCleanerManagerTest as behaviours; each test names its model."""

import pickle
import threading
from pathlib import Path

import pytest

from sparklog.common import TopicPartition
from sparklog.errors import DataCorruptionError, InvalidRequestError
from sparklog.log.cleaner_options import CleanerOptions
from sparklog.logdir.cleaning.cleaner import (
    clean_partition,
    compacted_partitions,
    finish,
    plan_job,
)
from sparklog.logdir.cleaning.rewrite import rewrite
from sparklog.logdir.offset_checkpoints import CLEANER, read_offsets
from sparklog.storage.ledger_records import AppendRecord
from sparklog.storage.offset_ranges import OffsetRange
from sparklog.storage.round_report import Cleanable
from tests.logdir.cleaning.logs import TOPIC, CompactedLog, batch, marker
from tests.logdir.partitions import T0, flip, judged

ABORT, COMMIT = 0, 1


@pytest.fixture
def make(tmp_path: Path):
    made: list[CompactedLog] = []

    def build(**config: object) -> CompactedLog:
        made.append(CompactedLog(tmp_path / f"log{len(made)}", **config))
        return made[-1]

    yield build
    for each in made:
        each.log.close()


class TestRecords:
    def test_cleaning_with_deletes(self, make) -> None:  # testCleaningWithDeletes
        log = make()
        log.segment(*((str(k), "v") for k in range(8)))
        log.segment(*((str(k), None) for k in range(0, 8, 2)))
        log.segment(("x", "v"))
        log.clean()
        assert log.keys() == ["1", "3", "5", "7", "0", "2", "4", "6", "x"]

    def test_tombstones_stay_for_their_retention(self, make) -> None:  # testCleanTombstone
        log = make()
        log.segment(("a", "1"), ("a", None))
        log.segment(("b", "1"))
        log.clean()
        assert log.rows() == [(1, "a", None), (2, "b", "1")]
        log.clock.advance(999)
        log.segment(("c", "1"))
        log.clean()
        assert log.keys()[0] == "a"
        log.clock.advance(1)
        log.segment(("d", "1"))
        log.clean()
        assert log.keys() == ["b", "c", "d"]

    def test_records_without_a_key_go(self, make) -> None:  # testCleaningWithUnkeyedMessages
        log = make()
        log.segment(("a", "1"), (None, "lost"), ("b", "1"))
        log.segment((None, "lost, too"), ("c", "1"))
        log.clean()
        assert log.keys() == ["a", "b", "c"]

    def test_what_is_appended_must_have_a_key(self, make) -> None:
        import pyarrow as pa

        log = make()
        for rows in (
            pa.table({"value": [b"v"]}),
            pa.table({"key": pa.array([b"k", None]), "value": [b"v", b"v"]}),
        ):
            with pytest.raises(InvalidRequestError, match="a row has no key"):
                log.log.append(TOPIC, rows)
        log.log.append(TOPIC, pa.table({"key": [b"k"], "value": pa.array([None], pa.binary())}))
        assert log.offsets() == [0]

    def test_a_full_map_ends_in_a_segment(self, make) -> None:  # testBuildPartialOffsetMap
        log = make()
        log.segment(("a", "1"), ("b", "1"), ("a", "2"), ("c", "1"), ("b", "2"))
        log.segment(("z", "1"))
        report = log.clean(options=CleanerOptions(dedupe_buffer_bytes=24 * 3))
        assert (report.next_dirty, report.keys) == (2, 2)  # 0.9 of 3 slots: a and b
        assert len(log.rows()) == 6
        while (report := log.clean(options=CleanerOptions(dedupe_buffer_bytes=24 * 3))).next_dirty:
            if report.next_dirty == log.bases()[-1]:
                break
        assert log.keys() == ["a", "c", "b", "z"]

    def test_beyond_missing_offsets(self, make) -> None:  # testCleaningBeyondMissingOffsets
        log = make()
        log.segment(("a", "1"), ("a", "2"))
        log.segment(("a", "3"), ("b", "1"))
        assert log.clean().next_dirty == 4
        log.segment(("a", "4"))
        assert log.clean().next_dirty == 5
        assert log.rows() == [(3, "b", "1"), (4, "a", "4")]


class TestProducers:
    def test_the_last_sequence_stays(self, make) -> None:
        """testLogCleanerRetainsProducerLastSequence, testDuplicateCheckAfterCleaning."""
        log = make()
        first = batch(("a", "1"), producer=1)
        log.write(first, roll=True)
        log.write(batch(("b", "1"), producer=2), batch(("a", "2"), producer=3), roll=True)
        log.write(batch(("b", "2")), roll=True)
        log.clean()
        assert log.offsets() == [2, 3]
        with log.commits.exclusive():
            log.commits.manager.forget_writers()
            state = log.commits.partition_log(TOPIC, 0)
            assert judged(state, first) == (0, 1)
            assert sorted(e.producer_id for e in state.producers.entries()) == [1, 2, 3]

    def test_the_last_batch_of_a_round_stays(self, make) -> None:
        """testCleanSegmentsRetainingLastEmptyBatch: the end of a compacted log is known."""
        log = make()
        log.segment(("a", "1"))
        log.write(batch(("b", None)), roll=True)
        log.clean()
        log.clock.advance(5000)
        log.segment(("a", "2"))
        log.clean()
        assert log.clean().dirt.first_dirty == 3
        raw = (log.directory / f"{log.bases()[0]:020d}.log").read_bytes()
        assert int.from_bytes(raw[-8:], "big", signed=True) != -1
        assert log.rows() == [(2, "a", "2")]


class TestTransactions:
    def test_a_commit_marker_goes_last(self, make) -> None:  # testCommitMarkerRemoval
        log = make()
        log.write(batch(("a", "1"), producer=1, transactional=True), marker(COMMIT, 1), roll=True)
        log.write(
            batch(("a", "2"), producer=2), batch(("b", "1"), producer=1, sequence=1), roll=True
        )
        sizes = []
        for _ in range(4):
            log.clean()
            sizes.append(len(b"".join(p.read_bytes() for p in log.directory.glob("*.log"))))
            log.clock.advance(5000)
            log.segment(("c", "1"))
        assert log.rows("read_committed")[:2] == [(2, "a", "2"), (3, "b", "1")]
        raw = (log.directory / f"{0:020d}.log").read_bytes()
        assert raw[:8] == (2).to_bytes(8, "big")  # data, then a horizon, then the marker is gone

    def test_aborted_data_go_at_once(self, make) -> None:  # testAbortedTransactionSpanningSegments
        log = make()
        log.write(batch(("a", "1"), producer=1, transactional=True), roll=True)
        log.write(
            batch(("a", "2"), producer=1, sequence=1, transactional=True),
            marker(ABORT, 1),
            roll=True,
        )
        log.segment(("b", "1"))
        log.clean()
        assert log.rows() == log.rows("read_committed") == [(3, "b", "1")]

    def test_later_data_of_an_aborting_producer_are_read(self, make) -> None:
        """Also while a reader goes by a list of aborted transactions older than the segment."""
        log = make()
        log.write(batch(("a", "1"), producer=1, transactional=True), marker(ABORT, 1), roll=True)
        log.write(
            batch(("b", "1"), producer=1, sequence=1, transactional=True),
            marker(COMMIT, 1),
            roll=True,
        )
        for number in range(4):
            log.clean()
            assert log.rows("read_committed")[0] == (2, "b", "1")
            log.clock.advance(5000)
            log.segment((f"x{number}", "1"))
        assert not list(log.directory.glob("*.txnindex"))

    def test_open_transactions_are_not_cleaned(self, make) -> None:
        """testUndecidedTransactionalDataNotCleanable"""
        log = make()
        log.segment(("a", "1"), ("a", "2"))
        log.write(batch(("a", "3"), producer=1, transactional=True), roll=True)
        log.segment(("a", "4"))
        report = log.clean()
        assert report.dirt.first_uncleanable == 2
        assert log.offsets() == [1, 2, 3]
        log.write(marker(COMMIT, 1), roll=True)
        log.clean()
        assert log.offsets() == [3]


class TestFiles:
    def test_segments_merge_and_the_rest_retires(self, make) -> None:
        log = make()
        for number in range(5):
            log.segment(("a", str(number)), (f"b{number}", "1"))
        snapshots = {int(p.name[:20]) for p in log.directory.glob("*.snapshot")}
        report = log.clean()
        assert log.bases() == [0, 10]
        assert (report.groups, report.segments) == (1, 5)
        assert sorted({int(Path(p).name[:20]) for p in report.retired}) == [2, 4, 6, 8]
        assert sorted(map(Path, report.retired)) == sorted(log.directory.glob("*.deleted"))
        assert {10} <= {int(p.name[:20]) for p in log.directory.glob("*.snapshot")} < snapshots

    def test_the_checkpoint_is_kafkas(self, make, tmp_path) -> None:
        log = make()
        log.segment(("a", "1"), ("a", "2"))
        log.clean()
        path = log.directory.parent / CLEANER
        assert path.read_text() == "0\n1\nt 0 2\n"
        assert log.clean().dirt.first_dirty == 2

    def test_the_time_of_the_last_source_stays(self, make) -> None:
        import os

        log = make()
        log.segment(("a", "1"))
        log.segment(("a", "2"))
        last = log.directory / f"{1:020d}.log"
        os.utime(last, (1_600_000_000, 1_600_000_000))
        log.clean()
        assert (log.directory / f"{0:020d}.log").stat().st_mtime == 1_600_000_000

    @pytest.mark.parametrize(
        ("at", "reason"), [(140, "offset"), (143, "offset"), (215, "offset"), (240, "crc")]
    )
    def test_a_damaged_source_is_left_alone(self, make, at, reason) -> None:
        """Also where no CRC covers it: a batch's offset."""
        log = make()
        log.segment(("a", "1"), ("a", "2"), ("b", "1"), ("c", "1"))
        path = log.directory / f"{0:020d}.log"
        assert path.stat().st_size == 4 * 70
        before = {p.name: p.read_bytes() for p in log.directory.iterdir()}
        flip(str(path), at)
        with pytest.raises(DataCorruptionError, match=reason):
            log.clean()
        flip(str(path), at)
        assert {p.name: p.read_bytes() for p in log.directory.iterdir()} == before

    def test_sources_that_changed_meanwhile(self, make) -> None:
        """Their inodes are looked at again under the lock."""
        log = make()
        log.segment(("a", "1"), ("a", "2"))
        job = plan_job(log.commits, TOPIC, 0)
        made = list(rewrite(log.commits.fs, job))
        source = log.directory / f"{0:020d}.log"
        data = source.read_bytes()
        source.rename(source.with_suffix(".other"))
        source.write_bytes(data)
        report = finish(log.commits, job, made)
        assert report.interrupted
        assert report.next_dirty is None
        assert not list(log.directory.glob("*.cleaned"))
        source.with_suffix(".other").unlink()
        assert log.offsets() == [0, 1]

    def test_a_topic_that_was_made_again(self, make) -> None:
        log = make()
        log.segment(("a", "1"), ("a", "2"))
        job = plan_job(log.commits, TOPIC, 0)
        made = list(rewrite(log.commits.fs, job))
        log.log.delete_topic(TOPIC)
        log.log.create_topic(TOPIC, config={"cleanup.policy": "compact"})
        assert finish(log.commits, job, made).interrupted

    def test_the_long_part_travels(self, make) -> None:
        """Job and result pickle, as a Spark task needs it."""
        log = make()
        log.segment(("a", "1"), ("a", "2"))
        log.segment(("a", "3"))
        job = pickle.loads(pickle.dumps(plan_job(log.commits, TOPIC, 0)))
        made = pickle.loads(pickle.dumps(list(rewrite(log.commits.fs, job))))
        assert log.offsets() == [0, 1, 2]
        assert finish(log.commits, job, made).next_dirty == 3
        assert log.offsets() == [2]

    def test_a_writer_and_a_service_at_once(self, make) -> None:
        """The write lock is free while the long part runs, and appends go on in between."""
        log = make()
        log.segment(*((str(n % 3), str(n)) for n in range(30)))
        job = plan_job(log.commits, TOPIC, 0)
        for made in rewrite(log.commits.fs, job):
            log.write(batch(("9", "during")))
            finish(log.commits, job, [made])
        assert log.keys() == ["0", "1", "2", "9"]

    def test_several_threads_clean_several_partitions(self, make) -> None:
        log = make()
        log.log.alter_topic(TOPIC, partitions=4)
        commits = log.commits
        for p in range(4):
            with commits.exclusive(), commits.step([(TOPIC, p)]) as step:
                writer = commits.partition_log(TOPIC, p)
                writer.append(batch(*((str(n % 5), "v") for n in range(500))), 0)
                writer.roll()
                writer.sync()
                step.record = AppendRecord(ends={TopicPartition(TOPIC, p): OffsetRange(0, 500)})
        failures: list[BaseException] = []

        def work(p: int) -> None:
            try:
                clean_partition(commits, TOPIC, p)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(p,)) for p in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        assert len(log.rows()) == 20
        found = read_offsets(commits.fs, str(log.directory.parent), CLEANER)
        assert found == {(TOPIC, p): 500 for p in range(4)}


def wanted(log: CompactedLog) -> list[Cleanable]:
    """The partitions that are dirty enough."""
    compacted = compacted_partitions(log.commits, now_ms=log.clock())
    return [partition for partition in compacted if partition.wanted]


class TestCleanable:
    def test_the_dirty_ratio_decides(self, make) -> None:
        log = make(min_cleanable_dirty_ratio=0.4)
        log.log.create_topic("u", config={"cleanup.policy": "delete"})
        assert wanted(log) == []
        log.segment(("a", "1"), ("b", "2"))
        (found,) = wanted(log)
        assert (found.topic, found.partition, found.dirt.ratio) == (TOPIC, 0, 1.0)
        log.clean()
        assert wanted(log) == []
        log.segment(("c", "1"))
        (every,) = compacted_partitions(log.commits, now_ms=log.clock())
        assert 0.3 < every.dirt.ratio < 0.4
        assert not every.wanted

    def test_overdue_by_max_compaction_lag(self, make) -> None:
        log = make(min_cleanable_dirty_ratio=1, max_compaction_lag_ms=10_000, segment_ms=10**12)
        log.segment(("a", "1"))
        log.clock.advance(9_999)
        assert wanted(log) == []
        log.clock.advance(2)
        assert [c.dirt.overdue_ms for c in wanted(log)] == [1]

    def test_min_compaction_lag(self, make) -> None:  # testCleanableOffsetsForTime
        log = make(min_compaction_lag_ms=1000)
        log.segment(("a", "1"), at=T0 - 2000)
        log.segment(("a", "2"), at=T0 - 500)
        log.segment(("a", "3"), at=T0 - 5000)
        assert log.clean().dirt.first_uncleanable == 1
        log.clock.advance(501)
        assert log.clean().dirt.first_uncleanable == 3

    @pytest.mark.parametrize("checkpoint", [99, 0])
    def test_a_checkpoint_out_of_range(self, make, checkpoint) -> None:
        """testDirtyOffsetResetIfLargerThanEndOffset, and one below the log start."""
        log = make()
        log.segment(("a", "1"), ("b", "2"), ("c", "1"))
        (log.directory.parent / CLEANER).write_text(f"0\n1\nt 0 {checkpoint}\n")
        if not checkpoint:
            log.log.delete_records(TOPIC, {0: 2})
        assert log.clean().dirt.first_dirty == (0 if checkpoint else 2)

    def test_other_policies_are_refused(self, make) -> None:
        log = make(cleanup_policy="delete")
        with pytest.raises(InvalidRequestError, match=r"cleanup\.policy=delete"):
            log.clean()
