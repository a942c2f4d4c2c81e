"""What a micro-batch holds, as Spark asks for it: limits, AvailableNow, what expires meanwhile."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sparklog
from sparklog import Log, OffsetOutOfRangeError
from sparklog.clock import ManualClock
from sparklog.log.arrow_reads import read_partition
from sparklog.log.read_retry import PartitionRead
from sparklog.source import metadata_snapshot, read_task
from sparklog.source.options import parse
from sparklog.source.schema import full_schema
from sparklog.source.stream import StreamReader
from sparklog.spark_versions import ReadAllAvailable, ReadMaxRows
from tests.source.test_replaced import WARNS, values

BEGIN = {"t": {"0": 0, "1": 0}}


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    """Topic t: two partitions of 100 records with values of 1,000 bytes."""
    with sparklog.open(tmp_path / "log", "rw") as log:
        log.create_topic("t", 2)
        for partition in (0, 1):
            append(log, partition, 100)
        yield log


def append(log: Log, partition: int, count: int) -> None:
    numbers = pa.array([partition] * count, pa.int32())
    log.append("t", pa.table({"value": ["x" * 1000] * count, "partition": numbers}))


def stream(log: Log, **options: object) -> StreamReader:
    given = {"path": log.path, "subscribe": "t", **{k: str(v) for k, v in options.items()}}
    return StreamReader(parse(given, streaming=True), full_schema(headers=False), ManualClock())


def end(reader: StreamReader, start: Any = BEGIN) -> Any:
    return reader.latestOffset(start, reader.getDefaultReadLimit())


def test_the_lowest_of_several_limits_holds(log: Log) -> None:
    some = {"maxOffsetsPerTrigger": 60}
    assert end(stream(log, **some)) == {"t": {"0": 30, "1": 30}}
    assert end(stream(log, **some, maxBytesPerTrigger=1 << 30)) == {"t": {"0": 30, "1": 30}}
    for options in ({}, some):  # the bytes of a record are those of all records in the segment
        few = end(stream(log, **options, maxBytesPerTrigger=20_000))["t"]
        assert few == {"0": 9, "1": 9}


@pytest.mark.parametrize("name", ["max", "min"])
def test_spark_hands_a_limit_back_and_never_all_that_is_there(log: Log, name: str) -> None:
    options = {"max": {"maxBytesPerTrigger": 9}, "min": {"minOffsetsPerTrigger": 9}}[name]
    assert isinstance(stream(log, **options).getDefaultReadLimit(), ReadMaxRows)
    assert stream(log, maxOffsetsPerTrigger=7).getDefaultReadLimit() == ReadMaxRows(7)
    assert isinstance(stream(log).getDefaultReadLimit(), ReadAllAvailable)


def test_available_now_is_what_was_there_at_the_trigger(log: Log) -> None:
    """However few: nothing more will come that it could wait for."""
    reader = stream(log, minOffsetsPerTrigger=1000)
    reader.prepareForTriggerAvailableNow()
    append(log, 0, 5)
    log.alter_topic("t", partitions=3)
    append(log, 2, 5)
    now = end(reader)
    assert now == {"t": {"0": 100, "1": 100}}
    append(log, 1, 1)
    assert end(reader, now) == now
    assert end(reader, {"t": {"0": 99, "1": 100}}) == now, "it waits for no other 999"


def test_what_expires_before_a_task_reads_it(
    log: Log, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def expired(read: PartitionRead, *given: Any, **named: Any) -> Any:
        if read.start < 40:
            raise OffsetOutOfRangeError("gone", offset=read.start, start=40, end=100)
        return read_partition(read, *given, **named)

    monkeypatch.setattr(read_task, "read_partition", expired)
    start, last = {"t": {"0": 5, "1": 100}}, {"t": {"0": 100, "1": 100}}
    reader = stream(log)
    with pytest.raises(OffsetOutOfRangeError, match=r"\[5, 40\) of t-0"):
        values(reader, reader.partitions(start, last))
    reader = stream(log, **WARNS)
    read = values(reader, reader.partitions(start, last))
    assert [offset for offset, _ in read] == list(range(40, 100))
    assert "offsets [5, 40) of t-0 are skipped" in caplog.text


def test_read_committed_ends_below_an_open_transaction(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        metadata_snapshot, "last_stable_offset", lambda view, topic, p, high: high - 10 * (p + 1)
    )
    assert end(stream(log)) == {"t": {"0": 100, "1": 100}}
    committed = {"kafka.isolation.level": "read_committed"}
    assert end(stream(log, **committed)) == {"t": {"0": 90, "1": 80}}
