"""What the strategies draw is what a log takes."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import find, given, settings

import sparklog
from sparklog.clock import ManualClock
from sparklog.config import NEW_TOPICS, TopicConfig
from sparklog.errors import InvalidRequestError
from sparklog.format.names import RESERVED
from sparklog.testing import strategies
from sparklog.testing.crashfs import CrashFS
from sparklog.testing.strategies import tables, timestamps, topic_configs, topic_names

QUICK = settings(max_examples=40)


def opened() -> sparklog.Log:
    return sparklog.open("/log", "rw", fs=CrashFS(), clock=ManualClock())


def as_bytes(column: pa.ChunkedArray) -> list[bytes | None]:
    return column.cast(pa.binary()).to_pylist()


@given(tables(partitions=3))
@QUICK
def test_a_table_comes_back_as_it_was(data: pa.Table) -> None:
    with opened() as log:
        log.create_topic("t", partitions=3)
        log.append("t", data)
        for p in range(3):
            rows = data.filter(pa.compute.equal(data["partition"], p))
            found = log.read("t", partitions=[p]).read_all()
            assert found["value"].to_pylist() == as_bytes(rows["value"])
            if "key" in data.column_names:
                assert found["key"].to_pylist() == as_bytes(rows["key"])
            if "headers" in data.column_names:
                wanted = [made or [] for made in rows["headers"].to_pylist()]
                assert [made or [] for made in found["headers"].to_pylist()] == wanted
            if "timestamp" in data.column_names:
                now = ManualClock()()
                times = rows["timestamp"].cast(pa.int64()).to_pylist()
                wanted_times = [now if time is None else time for time in times]
                found_times = found["timestamp"].cast(pa.timestamp("ms", tz="UTC"))
                assert found_times.cast(pa.int64()).to_pylist() == wanted_times


@given(topic_names, topic_configs())
@QUICK
def test_a_log_takes_any_topic(name: str, config: dict[str, object]) -> None:
    with opened() as log:
        log.create_topic(name, config=config)
        assert log.topic(name).config == TopicConfig.parse(config, base=NEW_TOPICS)


@pytest.mark.parametrize("name", [".", "..", *sorted(RESERVED), "__sparklog_x"])
def test_no_name_that_a_log_refuses(name: str) -> None:
    """They stand in our modules, of whose words hypothesis tries some as well."""
    assert not strategies._may_be_made(name)
    with opened() as log, pytest.raises(InvalidRequestError):
        log.create_topic(name)


@pytest.mark.deep
def test_they_reach_the_edges() -> None:
    """One of each kind is drawn, so that no property holds for lack of examples."""
    for name in ("cleanup.policy", "compression.gzip.level", "min.cleanable.dirty.ratio"):
        find(topic_configs(), lambda config, name=name: name in config)
    find(tables(), lambda data: data.column_names == ["value"])
    find(tables(), lambda data: data["value"].null_count > 0 and data.num_rows > 2)
    find(tables(), lambda data: set(data.column_names) == {"value", "key", "headers", "timestamp"})
    find(tables(), lambda data: data["value"].type == pa.string())
    assert find(timestamps(5, 10, null=False), lambda time: time is not None and time > 5) == 6


@pytest.mark.parametrize("size", [0, 3])
def test_rows_can_be_bounded(size: int) -> None:
    assert find(tables(rows_min=size, rows_max=size), lambda _: True).num_rows == size
