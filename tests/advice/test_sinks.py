"""What the sink's refusals advise, done: without a Spark session, as Spark calls its parts."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructType

import sparklog
from sparklog import sink
from sparklog.errors import InvalidRequestError, LogReplacedError, SparklogError, UnknownTopicError
from sparklog.log.log import home_of
from sparklog.sink import open_logs
from sparklog.sink.columns import columns_to_write
from sparklog.sink.options import parse
from sparklog.sink.segment_sink import commit_chunks, plan_tasks
from sparklog.sink.writers import BatchWriter

VALUE = StructType().add("value", StringType())
ROUTED = StructType().add("value", StringType()).add("topic", StringType())
NO_CREATION = {"auto.create.topics.enable": "false"}


@pytest.fixture
def path(tmp_path: Path) -> Iterator[str]:
    yield str(tmp_path / "log")
    sink.close(str(tmp_path / "log"))


def staged(path: str, topics: list[str | None], **options: Any) -> tuple[BatchWriter, Any]:
    """A batch write of one task, before its commit: a row for each topic."""
    schema = VALUE if "topic" in options else ROUTED
    writer = BatchWriter(parse({"path": path, **options}), schema, False)
    rows = pa.RecordBatch.from_pydict(
        {"value": ["v"] * len(topics), "topic": pa.array(topics, pa.string())}
    )
    task = pickle.loads(pickle.dumps(writer))
    return writer, task.write(iter([rows.select(schema.names)]))


def write(path: str, topics: list[str | None], **options: Any) -> None:
    writer, told = staged(path, topics, **options)
    writer.commit([told])


def ends(path: str) -> dict[str, int]:
    with sparklog.open(path) as log:
        return {
            topic: sum(end for _, end in log.offsets(topic).values()) for topic in log.topics()
        }


def test_a_log_is_appended_to() -> None:
    options = parse({"path": "/log", "topic": "t"})
    with pytest.raises(InvalidRequestError, match=r"can't be overwritten: use mode\('append'\)"):
        BatchWriter(options, VALUE, True)
    BatchWriter(options, VALUE, False)  # what mode("append") makes


def test_rows_have_a_topic_by_an_option_or_by_a_column(path: str) -> None:
    advice = "no topic: set option topic, or add a column topic"
    with pytest.raises(InvalidRequestError, match=advice):
        columns_to_write(VALUE, parse({"path": path}))
    assert columns_to_write(VALUE, parse({"path": path, "topic": "t"})) == ["value"]
    assert columns_to_write(ROUTED, parse({"path": path})) == ["value", "topic"]


def test_each_row_has_a_topic(path: str) -> None:
    advice = "null topic: set a topic in each row, or set option topic; nothing was appended"
    with pytest.raises(InvalidRequestError, match=advice):
        write(path, ["t", None])
    assert ends(path) == {}
    write(path, ["t", "u"])
    assert ends(path) == {"t": 1, "u": 1}
    write(path, ["t", None], topic="t")
    assert ends(path) == {"t": 3, "u": 1}


def test_an_unknown_topic_is_made_or_corrected(path: str) -> None:
    with sparklog.open(path, "rw") as log:
        log.create_topic("t")
    advice = "is false: create the topic, or correct the rows; nothing was appended"
    with pytest.raises(UnknownTopicError, match=advice):
        write(path, ["t", "new"], **NO_CREATION)
    assert ends(path) == {"t": 0}
    write(path, ["t", "t"], **NO_CREATION)
    with sparklog.open(path, "rw") as log:
        log.create_topic("new")
    write(path, ["t", "new"], **NO_CREATION)
    assert ends(path) == {"t": 3, "new": 1}


class Overtaken:
    """A log in which another process makes each topic just before, with two partitions."""

    def __init__(self, log: sparklog.Log) -> None:
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def create_topic(self, topic: str, *given: Any, **more: Any) -> Any:
        self._log.create_topic(topic, 2)
        return self._log.create_topic(topic, *given, **more)


def test_a_batch_is_written_again_after_its_topic_was_made_otherwise(path: str) -> None:
    options = parse({"path": path, "partitions": 3})
    rows = pa.RecordBatch.from_pydict({"value": ["v"] * 9, "topic": ["t"] * 9})
    with sparklog.open(path, "rw") as log:
        plan = plan_tasks(options, log, "label", ["value", "topic"])
        chunks = [*plan.run([rows], task=0).chunks()]
        overtaken: Any = Overtaken(log)
        with pytest.raises(SparklogError, match=r"2 partitions .*; write the micro-batch again"):
            commit_chunks(overtaken, options, plan, chunks, None, {})
    assert ends(path) == {"t": 0}
    write(path, ["t"] * 9, partitions=3)
    assert ends(path) == {"t": 9}


def test_a_query_whose_log_was_replaced_is_started_again(path: str) -> None:
    options = parse({"path": path, "topic": "t"})
    before = open_logs.shared_log(options)
    shutil.rmtree(path)
    with sparklog.open(path, "rw"):  # another log
        open_logs.shared_log(options)  # of another query
    with pytest.raises(LogReplacedError, match="Restart this query to continue in the new log"):
        open_logs.shared_log(options, [home_of(before)])
    again = open_logs.shared_log(options)
    again.create_topic("t")
    again.append("t", pa.table({"value": ["v"]}))
    assert ends(path) == {"t": 1}
