"""One contract of the service's rounds: log dirs, and a log in a store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog.clock import ManualClock
from sparklog.errors import InvalidRequestError, UnknownTopicError
from sparklog.service import Service
from sparklog.tiered.target import open_store
from tests.service.test_service import stepped

MINUTE = 60_000
DAY = 24 * 60 * MINUTE
CONFIG = {"internal.segment.bytes": "400", "retention.ms": "-1"}  # a batch per segment
COMPACT = CONFIG | {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}


def append(log: sparklog.Log, clock: ManualClock, *keys: str, partition: int = 0) -> None:
    """Append a batch per key, and wait until a service in a bucket merges them."""
    stamps = pa.array([clock()], pa.timestamp("ms", tz="UTC"))
    for number, key in enumerate(keys):
        value = f"{key}-{number}".ljust(300, ".").encode()
        rows = pa.table({"key": [key.encode()], "value": [value], "timestamp": stamps})
        log.append("t", rows, partition=partition)
    clock.advance(11 * MINUTE)


class RoundsContract:
    """The rules that all homes share; a subclass has the path of a new log."""

    @pytest.fixture
    def log(self, path: str, clock: ManualClock) -> Iterator[sparklog.Log]:
        with sparklog.open(path, "rw", clock=clock) as log:
            yield log

    @pytest.fixture
    def service(self, log: sparklog.Log, path: str, clock: ManualClock) -> Service:
        return Service(path, clock=clock)

    def damage(self, path: str) -> None:
        """Flip a bit of the first segment of t-0."""
        raise NotImplementedError

    def test_a_first_deletion_is_announced_a_round_ahead(
        self, log: sparklog.Log, service: Service, path: str, clock: ManualClock
    ) -> None:
        log.create_topic("t", config=CONFIG | {"retention.ms": str(20 * MINUTE)})
        append(log, clock, "a")
        append(log, clock, "b")
        dry = service.run_once(dry_run=True)
        assert [(one.topic, one.partition, one.log_start) for one in dry.deleted] == [("t", 0, 1)]
        assert not dry.notes
        first = service.run_once()
        assert not first.deleted
        assert first.notes == ["t-0: 1 segment due; the next round deletes them"]
        second = Service(path, clock=clock).run_once()
        (deleted,) = second.deleted
        assert (deleted.log_start, deleted.segments[0].rule) == (1, "retention.ms")
        clock.advance(10 * MINUTE)
        append(log, clock, "c")
        assert [one.log_start for one in service.run_once().deleted] == [2]

    def test_a_deletion_on_request_is_not_announced(
        self, log: sparklog.Log, service: Service, clock: ManualClock
    ) -> None:
        log.create_topic("t", config=CONFIG | {"retention.bytes": "0"})
        append(log, clock, "a")
        report = service.retain()
        assert [one.log_start for one in report.deleted] == [1]
        assert not any("announced" in note for note in report.notes)
        assert log.offsets("t")[0] == (1, 1)

    def test_segments_that_were_kept_are_announced_again(
        self, log: sparklog.Log, service: Service, clock: ManualClock
    ) -> None:
        log.create_topic("t", config=CONFIG | {"retention.bytes": "0"})
        append(log, clock, "a")
        assert not service.run_once().deleted
        log.alter_topic("t", config={"retention.bytes": "-1"})
        assert not service.run_once().deleted
        log.alter_topic("t", config={"retention.bytes": "0"})
        assert not service.run_once().deleted
        assert log.offsets("t")[0] == (0, 1)
        assert service.run_once().deleted

    def test_a_topic_that_is_created_again_is_announced_again(
        self, log: sparklog.Log, service: Service, clock: ManualClock
    ) -> None:
        config = CONFIG | {"retention.bytes": "0"}
        for _ in range(2):
            log.create_topic("t", config=config)
            append(log, clock, "a")
            assert not service.run_once().deleted
            assert service.run_once().deleted
            log.delete_topic("t")

    def test_the_dirtiest_partition_is_cleaned_first(
        self, log: sparklog.Log, service: Service, clock: ManualClock
    ) -> None:
        log.create_topic("t", 3, config=COMPACT)
        for partition in range(3):
            append(log, clock, *"aabbccddee", partition=partition)
        assert {one.partition for one in service.run_once().cleaned} == {0, 1, 2}
        for partition, keys in enumerate(("aa", "abcdeabc", "abcd")):
            append(log, clock, *keys, partition=partition)
        cleaned = service.run_once().cleaned
        assert [one.partition for one in cleaned] == [1, 2, 0]
        ratios = [one.dirt.ratio for one in cleaned]
        assert ratios == sorted(ratios, reverse=True)
        assert ratios[-1] > 0
        assert not service.run_once().cleaned

    def test_a_partition_below_its_ratio_is_cleaned_on_request_only(
        self, log: sparklog.Log, service: Service, clock: ManualClock
    ) -> None:
        log.create_topic("t", config=COMPACT | {"min.cleanable.dirty.ratio": "1"})
        log.create_topic("other", config=COMPACT)
        append(log, clock, *"aabbaabb")
        assert not service.run_once().cleaned
        assert not service.compact(["other"]).cleaned
        (dry,) = service.compact(["t"], dry_run=True).cleaned
        assert dry.dry_run
        assert dry.next_dirty is None
        assert log.read("t").read_all().num_rows == 8
        (done,) = service.compact(["t"]).cleaned
        assert done.dirt == dry.dirt
        assert done.records_kept < done.records_read
        assert log.read("t").read_all().num_rows < 8
        assert not service.compact().cleaned

    def test_only_compacted_topics_are_compacted(
        self, log: sparklog.Log, service: Service
    ) -> None:
        log.create_topic("t", config=CONFIG)
        with pytest.raises(UnknownTopicError, match=r"topic nope is not in .*; its topics: t$"):
            service.compact(["nope"])
        with pytest.raises(InvalidRequestError, match=r"topic t is not compacted: its .*delete"):
            service.compact(["t"])

    def test_a_damaged_partition_is_skipped_until_its_topic_is_another(
        self, log: sparklog.Log, service: Service, path: str, clock: ManualClock
    ) -> None:
        log.create_topic("t", 2, config=COMPACT | {"min.cleanable.dirty.ratio": "1"})
        for partition in range(2):
            append(log, clock, *"aabbaabb", partition=partition)
        service.run_once()  # in a bucket, merges
        self.damage(path)
        with stepped(service):
            report = service.compact()
            assert [error.split(":")[0] for error in report.errors] == ["t-0"]
            assert [one.partition for one in report.cleaned] == [1]
            assert not service.compact().errors
            log.delete_topic("t")
            log.create_topic("t", config=COMPACT)
            append(log, clock, *"aabbaabb")
            assert [one.topic for one in service.run_once().cleaned] == ["t"]

    def test_retention_waits_for_registered_readers(
        self, log: sparklog.Log, service: Service, clock: ManualClock
    ) -> None:
        config = {"retention.bytes": "0", "retention.respect.readers": "true"}
        log.create_topic("t", config=CONFIG | config)
        append(log, clock, *"abcd")
        log.commit_offsets("audit", {"t": {0: 2}})
        report = service.retain()
        assert log.offsets("t")[0][0] == 2
        assert report.deleted[0].held_back_bytes > 0
        assert "wait for registered readers" in str(report)
        log.commit_offsets("audit", {"t": {0: 4}})
        service.retain()
        assert log.offsets("t")[0] == (4, 4)

    def test_a_silent_reader_is_forgotten(
        self, log: sparklog.Log, service: Service, clock: ManualClock
    ) -> None:
        config = {"retention.bytes": "0", "retention.respect.readers": "true"}
        log.create_topic("t", config=CONFIG | config)
        append(log, clock, *"ab")
        log.commit_offsets("audit", {"t": {0: 0}})
        assert not any(one.segments for one in service.retain().deleted)
        clock.advance(8 * DAY)
        silent = "forgotten: silent for offsets.retention.minutes"
        dry = service.run_once(dry_run=True).notes
        assert [note for note in dry if "reader" in note] == [f"reader audit would be {silent}"]
        done = service.run_once().notes
        assert [note for note in done if "reader" in note] == [f"reader audit {silent}"]
        assert not log.readers().num_rows
        service.retain()
        assert log.offsets("t")[0] == (2, 2)


class TestRoundsOfLogDir(RoundsContract):
    @pytest.fixture
    def path(self, tmp_path: Path) -> str:
        return str(tmp_path / "log")

    def damage(self, path: str) -> None:
        segment = Path(path, "t-0", f"{0:020d}.log")
        segment.write_bytes(flipped(segment.read_bytes()))


class TestRoundsOfMemoryStore(RoundsContract):
    @pytest.fixture
    def path(self, tmp_path: Path) -> str:
        return f"memory://{tmp_path.name}/log"

    def damage(self, path: str) -> None:
        store = open_store(path)
        name = min(each.name for each in store.list("t-0-") if each.name.endswith(".log"))
        store.put(name, flipped(store.get(name)))


def flipped(data: bytes) -> bytes:
    return data[:80] + bytes([data[80] ^ 1]) + data[81:]
