"""Deleted topics in every home: which ones can be restored under their name."""

from collections.abc import Iterator

import pyarrow as pa
import pytest

import sparklog
from sparklog import InvalidRequestError, Log, UnknownTopicError
from sparklog.clock import ManualClock

HOUR_MS = 3_600_000
CONFIG = {"file.delete.delay.ms": HOUR_MS, "internal.segment.bytes": 300}


@pytest.fixture
def log(log_path: str, clock: ManualClock) -> Iterator[Log]:
    """A topic t of two partitions, in log dirs of several segments each."""
    with sparklog.open(log_path, "rw", clock=clock) as log:
        log.create_topic("t", 2, CONFIG)
        for number in range(8):
            log.append("t", pa.table({"value": [b"%d" % number * 40]}), number % 2)
        log.append("t", pa.table({"value": [b"p"]}), 0, producer=(7, 0, 0))
        log.delete_records("t", {1: 1})
        yield log


def rows(log: Log) -> list[tuple[int, int, bytes]]:
    table = log.read("t", columns=["partition", "offset", "value"]).read_all()
    return list(zip(*table.to_pydict().values(), strict=True))


def test_it_comes_back_whole(log: Log, log_path: str, clock: ManualClock) -> None:
    before, info, offsets = rows(log), log.topic("t"), log.offsets("t")
    log.commit_offsets("group", {"t": {0: 3}})
    assert log.delete_topic("t") == HOUR_MS
    assert log.topics() == {}
    with pytest.raises(UnknownTopicError):
        log.offsets("t")
    with pytest.raises(UnknownTopicError):
        log.append("t", pa.table({"value": ["x"]}))
    (deleted,) = sparklog.open(log_path, clock=clock).deleted_topics()
    assert (deleted.name, deleted.id, deleted.until_ms - deleted.deleted_ms, deleted.records) == (
        "t", info.id, HOUR_MS, len(before),
    )  # fmt: skip
    clock.advance(HOUR_MS - 1)
    assert log.undelete_topic("t") == info
    assert rows(log) == before
    assert log.offsets("t") == offsets
    assert rows(sparklog.open(log_path, clock=clock)) == before
    assert log.deleted_topics() == []
    assert log.readers().to_pydict()["offset"] == [3]
    record = pa.table({"value": [b"p"]})
    assert log.append("t", record, 0, producer=(7, 0, 0)) == {"t": {0: (4, 5)}}  # a replay
    assert log.append("t", record, 0, producer=(7, 0, 1)) == {"t": {0: (5, 6)}}


def test_now(log: Log) -> None:
    assert log.delete_topic("t", now=True) == 0
    assert log.deleted_topics() == []
    log.create_topic("t", config=CONFIG)
    log.delete_topic("t")
    assert log.delete_topic("t", now=True) == 0  # of one that was deleted before
    assert log.deleted_topics() == []
    with pytest.raises(UnknownTopicError):
        log.delete_topic("t", now=True)
    with pytest.raises(UnknownTopicError, match="can be restored"):
        log.undelete_topic("t")


def test_a_topic_that_was_made_since_keeps_the_name(log: Log, clock: ManualClock) -> None:
    first = log.topic("t").id
    log.delete_topic("t")
    log.create_topic("t", 2, CONFIG)
    with pytest.raises(InvalidRequestError, match="topic t exists"):
        log.undelete_topic("t")
    log.append("t", pa.table({"value": ["second"]}), 0)
    clock.advance(1)
    log.delete_topic("t")
    with pytest.raises(InvalidRequestError, match="has used its offsets, and an offset must not"):
        log.undelete_topic("t", topic_id=first)
    assert log.undelete_topic("t").name == "t"  # the newest
    assert rows(log) == [(0, 5, b"second")]


def test_one_that_held_nothing_is_no_hindrance(log: Log) -> None:
    before = rows(log)
    log.delete_topic("t")
    log.create_topic("t", 2, CONFIG)
    second = log.topic("t").id
    log.delete_topic("t")
    assert log.undelete_topic("t", topic_id=log.deleted_topics()[0].id)
    assert rows(log) == before
    with pytest.raises(InvalidRequestError):
        log.undelete_topic("t", topic_id=second)
