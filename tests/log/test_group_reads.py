"""Reads of a group in every home: where they start, and which offsets they commit."""

from collections.abc import Iterator

import pyarrow as pa
import pytest

import sparklog
from sparklog import Log, OffsetOutOfRangeError
from sparklog.clock import ManualClock
from sparklog.log.group_progress import COMMIT_INTERVAL_MS
from sparklog.log.log import home_of


@pytest.fixture
def log(log_path: str, clock: ManualClock) -> Iterator[Log]:
    """Topic t: two partitions of 100 records."""
    with sparklog.open(log_path, "rw", clock=clock) as log:
        log.create_topic("t", 2)
        for p in (0, 1):
            log.append("t", pa.table({"value": [str(n) for n in range(100)]}), p)
        yield log


def committed(log: Log, group: str = "g") -> dict[int, int]:
    return {key.partition: at.offset for key, at in home_of(log).groups.positions(group).items()}


def test_a_read_registers_where_it_begins_and_as_it_goes(log: Log, clock: ManualClock) -> None:
    reader = log.read("t", group="g", columns=["value"])
    assert committed(log) == {0: 0, 1: 0}
    reader.read_next_batch()
    clock.advance(COMMIT_INTERVAL_MS)
    assert committed(log) == {0: 0, 1: 0}  # it may be at work on these
    reader.read_next_batch()
    assert committed(log) == {0: 100, 1: 0}
    with pytest.raises(StopIteration):
        reader.read_next_batch()
    assert committed(log) == {0: 100, 1: 100}


def test_a_group_goes_on_where_it_was(log: Log) -> None:
    assert log.read("t", group="g").read_all().num_rows == 200
    with sparklog.open(log.path) as reader:
        assert reader.read("t", group="g").read_all().num_rows == 0
        log.append("t", pa.table({"value": ["new"]}), 1)
        assert reader.read("t", group="g").read_all()["value"].to_pylist() == [b"new"]
    assert log.read("t", group="other").read_all().num_rows == 201
    assert log.read("t", [0], start={0: 95}, group="g").read_all().num_rows == 5  # a seek
    assert log.read("t", start="latest", group="late").read_all().num_rows == 0
    log.append("t", pa.table({"value": ["newer"]}), 1)
    assert log.read("t", start="latest", group="late").read_all().num_rows == 1


def test_members_of_a_group_read_other_partitions(log: Log) -> None:
    log.read("t", [0], group="g", end={0: 20}).read_all()
    log.read("t", [1], group="g", end={1: 50}).read_all()
    assert committed(log) == {0: 20, 1: 50}


def test_what_is_gone_for_a_group_is_an_error_with_the_way_on(log: Log) -> None:
    log.commit_offsets("g", {"t": {0: 10}})
    log.delete_records("t", {0: 20})
    with pytest.raises(OffsetOutOfRangeError, match=r"up to 10, .*\[20, 100\).*start=\{0: -2\}"):
        log.read("t", [0], group="g")
    assert log.read("t", [0], start={0: -2}, group="g").read_all().num_rows == 80
    assert committed(log) == {0: 100}


def test_what_a_group_committed_shows_with_its_lag(log: Log, clock: ManualClock) -> None:
    clock.advance(5)
    log.commit_offsets("g", {"t": {0: 30, 1: 100}})
    clock.advance(7)
    log.commit_offsets("g", {"t": {1: 90}})  # back, too, and 0 stays as it is
    log.delete_records("t", {0: 10})
    table = log.readers()
    assert table.schema.names == [
        "group", "kind", "query", "host", "app", "topic", "partition", "offset", "log_start",
        "high_watermark", "lag", "time", "expired",
    ]  # fmt: skip
    first, second = table.drop_columns(["query", "host", "app", "time"]).to_pylist()
    common = {"group": "g", "kind": "group", "topic": "t", "high_watermark": 100, "expired": False}
    assert first == common | {"partition": 0, "offset": 30, "log_start": 10, "lag": 70}
    assert second == common | {"partition": 1, "offset": 90, "log_start": 0, "lag": 10}
    times = table["time"].cast(pa.int64()).to_pylist()
    assert times == [clock() - 7, clock()]
    assert log.delete_reader("g")
    assert not log.delete_reader("g")
    assert log.readers().num_rows == 0
