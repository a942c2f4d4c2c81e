"""Exports that grow from time to time, and what a broker makes of an exported directory."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import sparklog
from sparklog.errors import InvalidRequestError, OffsetOutOfRangeError
from sparklog.service import Service, verify
from sparklog.tools.moving import export_kafka, preserved_offsets
from sparklog.tools.moving.export_log import export_log
from sparklog.tools.moving.exporting import TopicRange
from tests.oracle import Oracle

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def rows(first: int, end: int) -> pa.Table:
    numbers = range(first, end)
    return pa.table(
        {
            "key": pa.array([b"k%d" % (n % 7) for n in numbers]),
            "value": pa.array([None if n % 11 == 0 else b"v%d" % n for n in numbers], pa.binary()),
            "headers": pa.array([[("h", b"1")] if n % 3 == 0 else [] for n in numbers], HEADERS),
            "timestamp": pa.array([10**12 + n for n in numbers], pa.timestamp("ms", tz="UTC")),
        }
    )


@pytest.fixture
def log(tmp_path: Path) -> Any:
    with sparklog.open(tmp_path / "log", "rw") as log:
        log.create_topic("t", 2)
        log.append("t", rows(0, 100), partition=0)
        log.append("t", rows(0, 50), partition=1)
        yield log


def read(log: sparklog.Log, **given: Any) -> pa.Table:
    return log.read("t", **given).read_all()


def test_each_record_once(log: sparklog.Log, tmp_path: Path) -> None:
    to = tmp_path / "to"

    def exported() -> pa.Table:
        with sparklog.open(to) as other:
            return read(other)

    assert export_log(TopicRange(log, "t", end={0: 60}), to).offsets == {0: (0, 60), 1: (0, 50)}
    assert exported().equals(read(log, end={0: 60}))
    assert export_log(TopicRange(log, "t"), to).offsets == {0: (60, 100)}
    assert export_log(TopicRange(log, "t"), to).offsets == {}
    assert exported().equals(read(log))
    log.append("t", rows(100, 120), partition=0)
    log.alter_topic("t", partitions=3)
    log.append("t", rows(0, 5), partition=2)
    assert export_log(TopicRange(log, "t"), to).offsets == {0: (100, 120), 2: (0, 5)}
    assert exported().equals(read(log))
    log.append("t", rows(120, 140), partition=0)
    log.delete_records("t", {0: 130})  # what was to be exported next is gone
    with pytest.raises(OffsetOutOfRangeError, match="up to 120, and the log starts at 130"):
        export_log(TopicRange(log, "t"), to)
    # The message advises a new place, or the offset at which the log starts.
    again = export_log(TopicRange(log, "t"), tmp_path / "new")
    assert again.offsets == {0: (130, 140), 1: (0, 50), 2: (0, 5)}
    assert export_log(TopicRange(log, "t", start={0: 130}), to).offsets == {0: (130, 140)}
    held = exported().filter(pc.equal(exported()["partition"], 0))["offset"].to_pylist()
    assert held == [*range(120), *range(130, 140)]


def test_a_broker_loads_a_range(
    log: sparklog.Log, tmp_path: Path, oracle: Oracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preserved_offsets, "COMMIT_BYTES", 500)
    export_log(TopicRange(log, "t", start={0: 17, 1: 50}, end={0: 83}), tmp_path / "to")
    judged = oracle.open(tmp_path / "to" / "t-0", clean=True)
    assert (judged.start, judged.end, judged.count) == (17, 83, 66)
    assert judged.untouched
    empty = oracle.open(tmp_path / "to" / "t-1", clean=True)
    assert (empty.start, empty.end, empty.count) == (50, 50, 0)
    assert verify(tmp_path / "to").ok


def test_gaps_stay(tmp_path: Path, oracle: Oracle) -> None:
    """Of a compacted topic; what is missing in the original is missing in the copy."""
    with sparklog.open(tmp_path / "log", "rw") as log:
        log.create_topic("t", config={"cleanup.policy": "compact", "segment.bytes": 1 << 20})
        for n in range(6):
            big = pa.array([bytes([n]) * 30_000] * 30)
            keys = pa.array([b"%d %d" % (n % 2, i % 13) for i in range(30)])
            log.append("t", pa.table({"key": keys, "value": big}))
        service = Service(tmp_path / "log")
        service.compact()
        service.close()
        kept = log.read("t", columns=["offset", "key", "value"]).read_all()
        assert kept.num_rows < 100
        export_log(TopicRange(log, "t", start={0: 5}), tmp_path / "to")
        export_log(TopicRange(log, "t"), tmp_path / "to")
    with sparklog.open(tmp_path / "to", "rw") as copy:
        assert copy.read("t", columns=["offset", "key", "value"]).read_all().equals(kept)
        copy.append("t", pa.table({"key": ["a"], "value": ["b"]}))
        assert copy.offsets("t") == {0: (5, 181)}
    assert verify(tmp_path / "to").ok
    judged = oracle.open(tmp_path / "to" / "t-0", clean=True)
    assert (judged.end, judged.count) == (181, kept.num_rows + 1)


def test_nobody_else_may_write_to_a_copy(log: sparklog.Log, tmp_path: Path) -> None:
    export_log(TopicRange(log, "t"), tmp_path / "to")
    with sparklog.open(tmp_path / "to", "rw") as copy:
        copy.append("t", pa.table({"value": ["mine"]}), partition=0)
    log.append("t", rows(100, 120), partition=0)
    with pytest.raises(InvalidRequestError, match="contains records that were not copied"):
        export_log(TopicRange(log, "t"), tmp_path / "to")
    with sparklog.open(tmp_path / "to", "rw") as copy:
        run = preserved_offsets.Run(100, 101, [])
        with pytest.raises(InvalidRequestError, match=r"ends at 101, but .* at offset 100:"):
            preserved_offsets.commit_runs(copy, "t", {0: run}, writer="w")
        assert copy.offsets("t")[0] == (0, 101)


def test_a_place_that_is_taken(log: sparklog.Log, tmp_path: Path) -> None:
    with sparklog.open(tmp_path / "other", "rw") as other:
        other.create_topic("t")
        other.append("t", pa.table({"value": ["mine"]}))
    advice = "t-0 contains records that.*: choose another name or place for the copy"
    with pytest.raises(InvalidRequestError, match=advice):
        export_log(TopicRange(log, "t"), tmp_path / "other")
    assert export_log(TopicRange(log, "t"), tmp_path / "free").records == 150


@pytest.mark.usefixtures("impatient")
def test_a_damaged_log_is_not_copied(tmp_path: Path) -> None:
    from tests.service.logs import flip, logs

    with sparklog.open(tmp_path / "log", "rw") as log:
        log.create_topic("t")
        log.append("t", rows(0, 50))
    flip(logs(tmp_path / "log" / "t-0")[0], 100)
    with sparklog.open(tmp_path / "log") as log, pytest.raises(sparklog.DataCorruptionError):
        export_log(TopicRange(log, "t"), tmp_path / "to")
    with sparklog.open(tmp_path / "to") as copy:
        assert copy.offsets("t") == {0: (0, 0)}


def test_an_export_to_kafka_that_is_stopped_says_so(
    log: sparklog.Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends after the transaction at hand, not after one of each partition."""
    sent: list[tuple[int, int]] = []

    class Target:
        def __init__(self, *_: Any) -> None: ...
        def check(self, partitions: int, source: str, *, retention_ms: str | None) -> str | None:
            return "import/c/t/id"

        def close(self) -> None: ...

        def begin(self, partitions: list[int]) -> dict[int, int]:
            return {}

        def send(self, p: int, rows: pa.RecordBatch, upto: int) -> None:
            sent.append((p, upto))

    monkeypatch.setattr(export_kafka, "Target", Target)
    monkeypatch.setattr(export_kafka, "TRANSACTION_RECORDS", 30)
    stopped: Any = lambda: len(sent) == 2  # noqa: E731
    done = export_kafka.export_kafka(TopicRange(log, "t"), "localhost:1", stopped=stopped)
    assert (sent, done.offsets, done.stopped) == ([(0, 30), (0, 60)], {0: (0, 60)}, True)
    sent.clear()
    done = export_kafka.export_kafka(TopicRange(log, "t"), "localhost:1")
    assert (done.records, done.stopped) == (150, False)
