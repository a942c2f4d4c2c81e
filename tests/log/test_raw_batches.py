"""Batches as they lie: what a decoder makes of them is what `read` gives, and they are bytes."""

import gzip
import json
import random
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sparklog
from sparklog import Log
from sparklog.common import TopicPartition
from sparklog.errors import (
    DataCorruptionError,
    LogReplacedError,
    OffsetOutOfRangeError,
    TopicReplacedError,
    UnknownTopicError,
)
from sparklog.format.batch import unpack_header
from sparklog.format.control import ControlType, read_marker
from sparklog.format.names import log_name
from sparklog.format.records import Decoder
from sparklog.format.scan import scan
from sparklog.log import read_retry
from sparklog.log.log import view_of
from sparklog.log.partition_reader import PartitionReader, ReadBudget
from sparklog.log.raw_batches import RawBatches, read_batches
from sparklog.log.read_retry import PartitionRead
from tests import paths
from tests.log.homes import IN_LOG_DIR
from tests.logdir.partitions import flip

GOLDEN = paths.GOLDEN / "kafka-4.1"
NAMES = sorted(p.name.removesuffix(".json.gz") for p in (GOLDEN / "expected").glob("*.json.gz"))


@pytest.fixture
def log(log_path: str) -> Iterator[Log]:
    """Topic t: offsets [0, 300) of six commits, batches of some ten records."""
    with sparklog.open(log_path, "rw") as log:
        log.create_topic("t", config={"max.message.bytes": 700})
        for n in range(6):
            log.append("t", pa.table({"value": [f"{n}-{i:060}" for i in range(50)]}))
        yield log


def raw(
    log: Log, start: int, end: int, budget: ReadBudget, topic: str = "t", **given: Any
) -> RawBatches:
    return read_batches(planned(log, topic, 0, start, end, **given), budget)


def planned(log: Log, topic: str, p: int, start: int, end: int, **given: Any) -> PartitionRead:
    view = view_of(log)
    known: Any = {"topic_id": view.topic_id(topic, p), "incarnation": view.renew()}
    return PartitionRead(view, topic, p, start, end, **(known | given))


def table_of(found: RawBatches) -> Any:
    """The headers of what was read, which must be nothing but whole batches with good CRCs."""
    data = b"".join(found.parts)
    batches = scan(data, path="answer")
    assert batches.error is None and batches.end == len(data) == found.size_bytes
    return batches.table


def values(found: RawBatches) -> list[tuple[int, bytes]]:
    data = b"".join(found.parts)
    decoder = Decoder(["offset", "value"])
    decoder.add_many(data, scan(data, path="answer").table, path="answer")
    rows = decoder.finish()
    return list(
        zip(rows.column("offset").to_pylist(), rows.column("value").to_pylist(), strict=True)
    )


class TestAnyHome:
    def test_all_of_it_is_what_read_gives(self, log: Log) -> None:
        found = raw(log, 0, 300, ReadBudget(1 << 20))
        rows = log.read("t", columns=["offset", "value"]).read_all()
        assert values(found) == list(
            zip(rows["offset"].to_pylist(), rows["value"].to_pylist(), strict=True)
        )
        assert found.next_offset == 300
        assert table_of(found)["base_offset"][0] == 0

    def test_any_range_and_room(self, log: Log) -> None:
        whole = table_of(raw(log, 0, 300, ReadBudget(1 << 20)))
        assert len(whole) > 20
        chosen = random.Random(4)
        for _ in range(60):
            start = chosen.randrange(300)
            end = int(chosen.choice(whole["last_offset"][whole["last_offset"] >= start]) + 1)
            budget = chosen.choice([0, 1, 700, 2_000, 10_000, 1 << 20])
            wanted = whole[(whole["last_offset"] >= start) & (whole["last_offset"] < end)]
            fitting = max(int((wanted["size"].cumsum() <= budget).sum()), 1)
            found = raw(log, start, end, ReadBudget(budget))
            table = table_of(found)
            assert table["base_offset"].tolist() == wanted["base_offset"][:fitting].tolist()
            assert found.next_offset == table["last_offset"][-1] + 1

    def test_a_reader_gets_on_whatever_its_room(self, log: Log) -> None:
        for budget in (1, 1500, 5000):
            at, seen = 0, []
            while at < 300:
                found = raw(log, at, 300, ReadBudget(budget))
                seen += [offset for offset, _ in values(found) if offset >= at]
                at = found.next_offset
            assert seen == list(range(300))

    def test_no_batch_above_the_room_unless_it_is_the_first_of_a_request(self, log: Log) -> None:
        none = raw(log, 0, 300, ReadBudget(10, at_least_one=False))
        assert (none.parts, none.size_bytes, none.next_offset) == ((), 0, 0)

    def test_no_batch_reaches_past_the_end(self, log: Log) -> None:
        last = int(table_of(raw(log, 0, 300, ReadBudget(1 << 20)))["last_offset"][3])
        assert raw(log, 0, last, ReadBudget(1 << 20)).next_offset <= last
        assert raw(log, 0, last + 1, ReadBudget(1 << 20)).next_offset == last + 1

    def test_nothing_is_kept_but_what_is_given_out(self, log: Log) -> None:
        found = raw(log, 0, 300, ReadBudget(1))
        held = sum(len(part.obj) for part in found.parts)
        assert held <= 2 * found.size_bytes

    def test_a_topic_that_was_made_again(self, log: Log) -> None:
        old = log.topic("t").id
        log.delete_topic("t")
        with pytest.raises((TopicReplacedError, UnknownTopicError)):
            raw(log, 0, 300, ReadBudget(1), topic_id=old)
        log.create_topic("t")
        log.append("t", pa.table({"value": ["new"] * 5}))
        with pytest.raises((TopicReplacedError, OffsetOutOfRangeError)):
            raw(log, 0, 300, ReadBudget(1), topic_id=old)
        with pytest.raises(TopicReplacedError):
            raw(log, 300, 305, ReadBudget(1), topic_id=old)
        assert [v for _, v in values(raw(log, 300, 305, ReadBudget(1)))] == [b"new"] * 5

    def test_offsets_that_are_gone(self, log: Log) -> None:
        log.delete_records("t", {0: 100})
        assert raw(log, 100, 300, ReadBudget(1)).next_offset > 100  # the batch that holds it
        log.delete_records("t", {0: 300})

    def test_an_end_that_the_log_has_not(self, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
        """As after a restore to an earlier state: what is read never passes for what was there."""
        monkeypatch.setattr(read_retry, "RETRY_MS", 20)
        with pytest.raises(LogReplacedError):
            raw(log, 300, 310, ReadBudget(1))


@IN_LOG_DIR
class TestMovingSegments:
    def test_a_damage_comes_behind_what_is_good(
        self, log: Log, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(read_retry, "RETRY_MS", 20)
        table = table_of(raw(log, 0, 300, ReadBudget(1 << 20)))
        row = table[10]
        path = Path(log.topic("t").dirs[0]) / log_name(0)
        flip(str(path), int(row["position"]) + 100)
        found = raw(log, 0, 300, ReadBudget(1 << 20))
        assert found.next_offset == row["base_offset"]
        with pytest.raises(DataCorruptionError, match="crc") as caught:
            raw(log, found.next_offset, 300, ReadBudget(1 << 20))
        assert caught.value.first == row["base_offset"]
        assert caught.value.position == row["position"]

    def test_beside_rolls_appends_and_other_threads(self, log: Log) -> None:
        """Threads share one reader while a writer appends and rolls."""
        log.alter_topic("t", config={"segment.bytes": 1 << 20, "max.message.bytes": 9000})
        stop, failures = threading.Event(), []

        def consume() -> None:
            try:
                at = 0
                while not stop.is_set() or at < log.offsets("t")[0][1]:
                    end = log.offsets("t")[0][1]
                    if at < end:
                        found = raw(log, at, end, ReadBudget(60_000))
                        table = table_of(found)
                        assert table["base_offset"][0] == at
                        at = found.next_offset
            except BaseException as error:  # told by the test's thread
                failures.append(error)

        threads = [threading.Thread(target=consume) for _ in range(4)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(40):
                log.append("t", pa.table({"value": ["x" * 1000] * 100}))
        finally:
            stop.set()
        for thread in threads:
            thread.join()
        assert failures == []


class TestGolden:
    """What a real broker wrote goes out byte for byte."""

    @pytest.mark.parametrize("name", NAMES)
    def test_bytes_are_those_of_the_files(self, name: str, golden: Log) -> None:
        topic, _, number = name.rpartition("-")
        key = TopicPartition(topic, int(number))
        view = view_of(golden)
        start, end = view.spans([key])[key]
        read = planned(golden, *key, start, end, isolation="read_committed")
        found = read_batches(read, ReadBudget(1 << 30))
        files = sorted((GOLDEN / "logdir" / name).glob("*.log"))
        stored = b"".join(path.read_bytes() for path in files)
        assert stored.endswith(b"".join(found.parts))
        assert found.next_offset == end
        table = table_of(found)
        assert int(table["base_offset"][0]) <= start or topic == "compacted"

    @pytest.mark.parametrize("name", [n for n in NAMES if n.startswith("txn")])
    def test_aborted_transactions_are_those_that_a_consumer_must_know(
        self, name: str, golden: Log
    ) -> None:
        """A client that drops what `aborted` names has just what a real one read."""
        topic, _, number = name.rpartition("-")
        with gzip.open(GOLDEN / "expected" / f"{name}.json.gz") as file:
            expected = [row[0] for row in json.load(file)["read_committed"]["records"]]
        key = TopicPartition(topic, int(number))
        view = view_of(golden)
        start, end = view.spans([key])[key]
        for budget in (1, 5_000, 1 << 30):
            at, seen = start, []
            while at < end:
                read = planned(golden, *key, at, end, isolation="read_committed")
                found = read_batches(read, ReadBudget(budget))
                seen += [offset for offset in kept_by_a_client(found) if offset >= at]
                at = found.next_offset
            assert seen == expected

    def test_who_reads_uncommitted_is_told_of_none(self, golden: Log) -> None:
        found = read_batches(planned(golden, "txn", 0, 0, 50), ReadBudget(1 << 30))
        assert found.aborted == ()


@pytest.fixture
def golden(tmp_path: Path) -> Iterator[Log]:
    """A broker's directory, opened to be read."""
    shutil.copytree(GOLDEN / "logdir", tmp_path / "golden")
    with sparklog.open(tmp_path / "golden") as log:
        yield log


def kept_by_a_client(found: RawBatches) -> list[int]:
    """Offsets of the records that a read_committed consumer keeps. Source: CompletedFetch."""
    data = b"".join(found.parts)
    waiting = sorted(found.aborted, key=lambda txn: txn.first_offset)
    active: set[int] = set()
    seen: list[int] = []
    for row in scan(data, path="answer").table:
        while waiting and waiting[0].first_offset <= int(row["last_offset"]):
            active.add(waiting.pop(0).producer_id)
        producer, kind = int(row["producer_id"]), int(row["attributes"])
        if kind & 0x20:
            if _is_abort(data, row):
                active.discard(producer)
            continue
        if kind & 0x10 and producer in active:
            continue
        decoder = Decoder(["offset"])
        decoder.add_many(data, row.reshape(1), path="answer")
        seen += decoder.finish().column("offset").to_pylist()
    return seen


def _is_abort(data: bytes, row: Any) -> bool:
    at = int(row["position"])
    marker = read_marker(data, at, unpack_header(data, at), path="answer", position=0)
    return marker is not None and marker.type is ControlType.ABORT


def test_threads_that_share_a_reader_find_one_last_stable_offset(golden: Log) -> None:
    view = view_of(golden)
    key = TopicPartition("txn", 0)
    end = view.spans([key])[key][1]
    reader = view.of_partition("txn", 0, PartitionReader)
    wanted = {e: PartitionReader(reader.segments).last_stable_offset(e) for e in range(0, end, 40)}
    found: list[bool] = []

    def ask(ends: list[int]) -> None:
        found.append(all(reader.last_stable_offset(e) == wanted[e] for e in ends))

    threads = [threading.Thread(target=ask, args=(list(wanted),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 4
