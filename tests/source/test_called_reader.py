"""Stream readers as Spark 4.0 and 4.1 call them, with the jar and without."""

from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition

from sparklog.errors import InvalidRequestError
from sparklog.source import called_reader
from sparklog.source.called_reader import CalledReader, callable_by_spark, check_limits
from sparklog.spark_versions import ReadAllAvailable, ReadMaxRows

Json = dict[str, Any]


class Reader:
    """A reader of one partition with ten records, that remembers its calls."""

    def __init__(self, limit: Any = None) -> None:
        self.calls: list[Any] = []
        self.limit = limit or ReadAllAvailable()

    def initialOffset(self) -> Json:
        self.calls.append("initialOffset")
        return {"t": {"0": 0}}

    def latestOffset(self, start: Json, limit: Any) -> Json:
        self.calls.append(("latestOffset", start, type(limit)))
        return {"t": {"0": 10}}

    def getDefaultReadLimit(self) -> Any:
        return self.limit

    def prepareForTriggerAvailableNow(self) -> None:
        self.calls.append("prepareForTriggerAvailableNow")

    def reportLatestOffset(self) -> Json | None:
        return None

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        self.calls.append(("partitions", start, end))
        return [InputPartition(1)]

    def read(self, partition: InputPartition) -> list[int]:
        return [partition.value]

    def commit(self, end: Json) -> None:
        self.calls.append(("commit", end))

    def stop(self) -> None:
        self.calls.append("stop")


def jvm_calls(reader: CalledReader, method: str, start: Json | None = None, **more: Any) -> Any:
    """What CallingStream does in the JVM."""
    call = {"#call": method, "start": start or {}, "limited": False, **more}
    assert reader.partitions(call, call) == []
    return reader.latestOffset()


def at(offset: int) -> Json:
    return {"t": {"0": offset}}


def test_the_jvm_makes_the_calls_that_the_worker_does_not_know() -> None:
    own = Reader()
    reader = CalledReader(own)
    assert jvm_calls(reader, "prepareForTriggerAvailableNow") is None
    assert jvm_calls(reader, "getDefaultReadLimit") is False
    assert jvm_calls(reader, "reportLatestOffset") is None
    assert jvm_calls(reader, "latestOffset", at(3)) == at(10)
    assert jvm_calls(reader, "latestOffset", at(3), limited=True) == at(10)
    assert len(reader.partitions(at(3), at(10))) == 1
    assert own.calls == [
        "prepareForTriggerAvailableNow",
        ("latestOffset", at(3), ReadAllAvailable),
        ("latestOffset", at(3), ReadMaxRows),
        ("partitions", at(3), at(10)),
    ]
    assert jvm_calls(CalledReader(Reader(ReadMaxRows(5))), "getDefaultReadLimit") is True


def test_without_the_jar_a_new_query_knows_its_start() -> None:
    own = Reader()
    reader = CalledReader(own)
    assert reader.initialOffset() == at(0)
    assert reader.latestOffset() == at(10)
    reader.partitions(at(0), at(10))
    assert reader.latestOffset() == at(10)
    assert own.calls[1:] == [
        ("latestOffset", at(0), ReadAllAvailable),
        ("partitions", at(0), at(10)),
        ("latestOffset", at(10), ReadAllAvailable),
    ]


def test_without_the_jar_a_continued_query_is_checked_from_its_start() -> None:
    """Spark names the start only after it asked for the end (trigger AvailableNow)."""
    own = Reader()
    reader = CalledReader(own)
    assert reader.latestOffset() == at(10)
    reader.partitions(at(4), at(10))
    assert own.calls == [
        ("latestOffset", {}, ReadAllAvailable),
        ("latestOffset", at(4), ReadAllAvailable),
        ("partitions", at(4), at(10)),
    ]


def test_the_rest_is_passed_on() -> None:
    own = Reader()
    reader = CalledReader(own)
    assert list(reader.read(InputPartition(7))) == [7]
    reader.commit(at(5))
    reader.stop()
    assert own.calls == [("commit", at(5)), "stop"]


@pytest.mark.parametrize(
    "name",
    ["maxOffsetsPerTrigger", "MAXBYTESPERTRIGGER", "minoffsetspertrigger", "maxBatchesPerTrigger"],
)
def test_a_limit_needs_the_jar(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(called_reader, "HAS_READ_LIMITS", False)
    with pytest.raises(InvalidRequestError, match=rf"(?i)option {name} needs sparklog's jar"):
        check_limits({"path": "/log", name: "5"}, has_jar=False)
    check_limits({"path": "/log", name: "5"}, has_jar=True)  # as after sparklog.enable(spark)
    check_limits({"path": "/log"}, has_jar=False)
    monkeypatch.setattr(called_reader, "HAS_READ_LIMITS", True)  # Spark 4.2
    check_limits({"path": "/log", name: "5"}, has_jar=False)


def test_newer_versions_call_the_reader_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    own: Any = Reader()
    monkeypatch.setattr(called_reader, "HAS_READ_LIMITS", True)
    assert callable_by_spark(own) is own
    monkeypatch.setattr(called_reader, "HAS_READ_LIMITS", False)
    assert isinstance(callable_by_spark(own), CalledReader)
