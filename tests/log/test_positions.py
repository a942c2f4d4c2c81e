"""Times and stable ends while files move: retention, a cleaner, a topic that is made again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog.clock import ManualClock
from sparklog.errors import DataCorruptionError
from sparklog.log.log import view_of
from sparklog.service import Service
from tests.log.homes import IN_LOG_DIR

CONFIG = {
    "internal.segment.bytes": "300",
    "file.delete.delay.ms": "0",
    "message.timestamp.before.max.ms": str(2**62),
    "message.timestamp.after.max.ms": str(2**62),
}
T0 = 1_700_000_000_000


def rows(first: int, count: int) -> pa.Table:
    stamps = pa.array([T0 + n for n in range(first, first + count)], pa.timestamp("ms", tz="UTC"))
    return pa.table({"value": [b"v"] * count, "timestamp": stamps})


@pytest.fixture
def log(log_path: str, clock: ManualClock) -> Iterator[sparklog.Log]:
    """20 records in segments of a few."""
    with sparklog.open(log_path, "rw", clock=clock) as log:
        log.create_topic("t", config={**CONFIG, "retention.ms": "-1"})
        for n in range(20):
            log.append("t", rows(n, 1))
        yield log


ALL = [*range(T0 - 1, T0 + 21), -1, -2, -3]


def answers(log: sparklog.Log, isolation: str = "read_uncommitted") -> list[int | None]:
    return [log.offsets_for_times("t", when, isolation)[0] for when in ALL]


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@IN_LOG_DIR
def test_a_time_whose_segment_retention_took(
    log: sparklog.Log, clock: ManualClock, isolation: str
) -> None:
    with sparklog.open(log.path) as reader:
        before = answers(reader, isolation)
        log.delete_records("t", {0: 13})
        assert Service(log.path, clock=clock).retain().deleted
        with sparklog.open(log.path) as fresh:
            wanted = answers(fresh, isolation)
        assert wanted != before
        assert answers(reader, isolation) == wanted


def test_a_time_in_a_topic_that_was_made_again(log: sparklog.Log) -> None:
    with sparklog.open(log.path) as reader:
        answers(reader)
        log.delete_topic("t")
        log.create_topic("t", config=CONFIG)
        log.append("t", rows(50, 3))
        assert reader.offsets_for_times("t", T0 + 5) == {0: 20}
        assert reader.offsets_for_times("t", T0 + 52) == {0: 22}


@IN_LOG_DIR
def test_a_partition_that_is_being_made(log: sparklog.Log) -> None:
    """Its metadata has a name before it has contents: it isn't there yet, nothing is damaged."""
    path = Path(log.path, "u-0", "partition.metadata")
    path.parent.mkdir()
    path.touch()
    with sparklog.open(log.path) as reader:
        assert list(reader.topics()) == ["t"]
        assert view_of(reader).topic_id("u", 0) is None
    path = Path(log.path, "t-0", "partition.metadata")
    path.write_bytes(b"")
    with sparklog.open(log.path) as reader, pytest.raises(DataCorruptionError, match="metadata"):
        view_of(reader).topic_id("t", 0)


@IN_LOG_DIR
@pytest.mark.usefixtures("impatient")
def test_a_segment_that_is_lost(log: sparklog.Log) -> None:
    """It is told as a read tells it: with directory and range."""
    directory = Path(log.path, "t-0")
    for name in os.listdir(directory):
        if name.startswith(f"{0:020d}."):
            (directory / name).unlink()
    with sparklog.open(log.path) as reader:
        with pytest.raises(DataCorruptionError) as read:
            reader.read("t").read_all()
        with pytest.raises(DataCorruptionError) as raised:
            reader.offsets_for_times("t", T0)
    assert (raised.value.path, raised.value.first) == (read.value.path, read.value.first)


@IN_LOG_DIR
def test_a_datetime_before_1970_is_a_time(log: sparklog.Log) -> None:
    """And neither the end nor the record with the greatest timestamp, which -1 and -3 ms are."""
    for ms in (1, 3, 10**9):
        when = datetime.fromtimestamp(0, UTC) - timedelta(milliseconds=ms)
        assert log.offsets_for_times("t", when) == {0: 0}
        assert log.read("t", start=when).read_all().num_rows == 20
