"""What becomes of a follower whose records, or whose topic, go away under it."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog.errors import OffsetOutOfRangeError, UnknownTopicError
from sparklog.service import Service
from sparklog.tools.console.consuming import ConsumeRequest, consume


def append(log: sparklog.Log, *values: str) -> None:
    log.append("t", pa.table({"key": list(values), "value": list(values)}))


@pytest.fixture
def log(tmp_path: Path) -> Iterator[sparklog.Log]:
    with sparklog.open(tmp_path / "log", "rw") as log:
        log.create_topic("t", config={"segment.bytes": 1 << 20})
        append(log, "a", "b")
        yield log


def test_records_are_deleted_ahead(log: sparklog.Log, tmp_path: Path) -> None:
    reader = sparklog.open(tmp_path / "log")
    found = consume(reader, ConsumeRequest(topic="t", follow_on=True, timeout_ms=240_000))
    assert next(found).num_rows == 2
    append(log, "c", "d")
    log.delete_records("t", {0: 3})
    with pytest.raises(OffsetOutOfRangeError, match=r"\[2, 3\)"):
        list(found)


def test_the_topic_is_deleted(log: sparklog.Log, tmp_path: Path) -> None:
    reader = sparklog.open(tmp_path / "log")
    found = consume(reader, ConsumeRequest(topic="t", follow_on=True, timeout_ms=240_000))
    assert next(found).num_rows == 2
    log.delete_topic("t")
    with pytest.raises(UnknownTopicError, match="t"):
        list(found)


def test_compacted_under_it(log: sparklog.Log, tmp_path: Path) -> None:
    log.alter_topic("t", config={"cleanup.policy": "compact"})
    for n in range(4):
        append(log, "a" * 400_000, "b" * 400_000, f"last {n}")
    reader = sparklog.open(tmp_path / "log")
    found = consume(reader, ConsumeRequest(topic="t", columns=["offset"], max_messages=100))
    seen = [next(found)["offset"].to_pylist()]
    with Service(tmp_path / "log") as service:
        service.compact()
    seen += [rows["offset"].to_pylist() for rows in found]
    offsets = [offset for part in seen for offset in part]
    assert offsets == sorted(set(offsets))
    assert {10, 11, 12, 13} <= set(offsets)


def test_it_stops_when_told(log: sparklog.Log, tmp_path: Path) -> None:
    reader = sparklog.open(tmp_path / "log")
    told = iter([False, False, True, True])
    request = ConsumeRequest(topic="t", follow_on=True)
    assert len(list(consume(reader, request, lambda: next(told)))) == 1
