"""How many characters Spark puts before the sentence of sparklog's errors."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

import sparklog
from sparklog.datasource import SparklogDataSource
from sparklog.errors import InvalidRequestError
from sparklog.sink import SegmentSink
from sparklog.source.batch import BatchReader
from sparklog.source.options import parse
from tests.spark.test_applications import bare_python

pytestmark = pytest.mark.spark

BOTH = pytest.mark.parametrize("jvm", ["true", pytest.param("false", marks=pytest.mark.deep)])


@pytest.fixture
def log(path: str) -> str:
    with sparklog.open(path, "rw") as log:
        log.create_topic("t")
        log.append("t", pa.table({"value": [str(n) for n in range(50)]}))
    return path


@pytest.fixture
def damaged(log: str) -> str:
    segment = Path(log, "t-0", f"{0:020}.log")
    raw = bytearray(segment.read_bytes())
    raw[80] ^= 1
    segment.write_bytes(raw)
    return log


def told(call: Callable[[], Any]) -> str:
    with pytest.raises(PySparkException) as found:
        call()
    return str(found.value)


def before(text: str, sentence: str) -> int:
    """Characters of `text` before the sentence; `sentence` begins with its class."""
    at = text.index(sentence) + len(sentence.split(": ")[0]) + 2
    assert "Traceback" not in text[:at] and "File " not in text[:at]
    return at


def run(df: DataFrame, checkpoint: str, format: str = "noop", **options: str) -> None:
    writer = df.writeStream.format(format).options(checkpointLocation=checkpoint, **options)
    writer.trigger(availableNow=True).start().awaitTermination(240)


@BOTH
def test_read(spark: SparkSession, log: str, jvm: str) -> None:
    reader = spark.read.format("sparklog").options(path=log, jvm=jvm)
    text = told(lambda: reader.option("subscribe", "gone").load().count())
    assert before(text, "UnknownTopicError: gone not in") == 117
    text = told(lambda: reader.options(subscribe="t", startingOffset="1").load().count())
    assert before(text, "InvalidRequestError: unknown option startingoffset") == 112


@pytest.mark.deep
@BOTH
def test_read_in_a_task(spark: SparkSession, damaged: str, jvm: str) -> None:
    df = spark.read.format("sparklog").options(path=damaged, subscribe="t", jvm=jvm).load()
    assert before(told(df.select("value").collect), f"DataCorruptionError: {damaged}/t-0") == 85


@pytest.mark.deep
@BOTH
def test_write(spark: SparkSession, log: str, jvm: str) -> None:
    df = spark.range(0, 10, 1, 1).selectExpr("cast(id as string) value", "if(id = 7, 9, 0) as p")
    writer = df.drop("p").write.format("sparklog").mode("append").options(path=log, jvm=jvm)
    text = told(lambda: writer.options(topic="t", partition="1").save())
    assert before(text, "InvalidRequestError: unknown option partition") == 112
    writer = df.withColumnRenamed("p", "partition").write.format("sparklog").mode("append")
    text = told(lambda: writer.options(path=log, topic="t", jvm=jvm).save())
    at = before(text, "InvalidRequestError: topic t has no partition 9")
    assert at == (37 if jvm == "true" else 85)


@BOTH
@pytest.mark.deep
def test_stream_read(spark: SparkSession, log: str, checkpoint: str, jvm: str) -> None:
    reader = spark.readStream.format("sparklog").options(path=log, jvm=jvm)
    text = told(lambda: run(reader.option("subscribe", "gone").load(), checkpoint))
    assert before(text, "UnknownTopicError: gone not in") == 283
    reader = reader.options(subscribe="t", startingOffset="1")
    text = told(lambda: run(reader.load(), checkpoint + "2"))
    assert before(text, "InvalidRequestError: unknown option startingoffset") == 301
    assert "UnboundLocalError" not in text


@pytest.mark.deep
@BOTH
def test_stream_write(
    spark: SparkSession, log: str, checkpoint: str, numbers: Callable[..., DataFrame], jvm: str
) -> None:
    options = {"path": log, "jvm": jvm, "topic": "t"}
    df = numbers(10).select("value")
    run(df, checkpoint, "sparklog", **options)
    metadata = Path(checkpoint, "metadata")
    copied = Path(checkpoint + "2", "metadata")
    copied.parent.mkdir()
    copied.write_text(metadata.read_text())
    other = numbers(20).select("value")
    text = told(lambda: run(other, checkpoint + "2", "sparklog", **options))
    assert before(text, "BatchConflictError: writer ") == 277
    bad = df.selectExpr("value", "if(value = '7', 9, 0) as partition")
    text = told(lambda: run(bad, checkpoint + "3", "sparklog", **options))
    at = before(text, "InvalidRequestError: topic t has no partition 9")
    assert at == (176 if jvm == "true" else 243)


@BOTH
def test_foreach_batch(
    log: str, checkpoint: str, numbers: Callable[..., DataFrame], jvm: str
) -> None:
    df = numbers(10).selectExpr("value", "if(value = '7', 9, 0) as partition")
    writer = df.writeStream.foreachBatch(SegmentSink(log, "t", jvm=jvm == "true"))
    writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    text = told(lambda: writer.start().awaitTermination(240))
    assert before(text, "InvalidRequestError: topic t has no partition 9") == 352


class BuggyReader(BatchReader):
    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(1 // 0)]


class BuggySource(SparklogDataSource):
    def reader(self, schema: StructType) -> DataSourceReader:
        return BuggyReader(parse(dict(self.options), streaming=False), schema)


@pytest.mark.deep
def test_a_bug_keeps_its_traceback(spark: SparkSession, log: str) -> None:
    session = spark.newSession()
    session.dataSource.register(BuggySource)
    df = session.read.format("sparklog").options(path=log, subscribe="t").load()
    text = told(df.count)
    assert "in partitions" in text and "ZeroDivisionError" in text


def test_a_python_of_workers_without_sparklog_is_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the session takes the source once its workers' Python has it."""
    session, python = spark.newSession(), str(tmp_path / "elsewhere")
    bare = bare_python(tmp_path)  # `python -m` finds what is in its directory: this checkout
    Path(python).write_text(f'#!/bin/sh\ncd / && exec {bare} "$@"\n')
    Path(python).chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setattr(spark.sparkContext, "pythonExec", python)
        with pytest.raises(InvalidRequestError, match=f"Spark's Python workers run {python}"):
            sparklog.register(session)
    sparklog.register(session)
