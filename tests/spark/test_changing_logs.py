"""Queries beside erasures, and topics that are deleted and given back.

The log changes within micro-batches: by a task that has read one partition, and stands before
another one and before its own chunks, all planned before.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import sparklog
from sparklog import Log, sink
from sparklog.service import erase, verify
from sparklog.sink import SegmentSink

pytestmark = [
    pytest.mark.spark,
    pytest.mark.deep,
    pytest.mark.also_python("what changed since it was planned"),
]

COUNT = 40  # records of each round


@pytest.fixture
def path(tmp_path: Path) -> Iterator[str]:
    log = f"{tmp_path}/log,{tmp_path}/disk2"
    yield log
    sink.close(log)


@pytest.fixture
def log(path: str) -> Iterator[Log]:
    """Topics `in` and `out`, of two partitions each, in two log dirs."""
    with sparklog.open(path, "rw") as log:
        for topic in ("in", "out"):
            log.create_topic(topic, 2, {"internal.segment.bytes": 4_000})
        yield log


def append(log: Log, number: int) -> None:
    """Round `number` of records into both partitions of `in` at once; their keys count on."""
    numbers = range(number * COUNT, (number + 1) * COUNT)
    keys = [str(n) for n in numbers]
    places = pa.array([n % 2 for n in numbers], pa.int32())
    rows = {"key": keys, "value": [key * 20 for key in keys], "partition": places}
    log.append("in", pa.table(rows))


def delete_and_give_back(path: str) -> None:
    with sparklog.open(path, "rw") as log:
        for topic in ("in", "out"):
            log.delete_topic(topic)
            log.undelete_topic(topic)


def erase_too(path: str) -> None:
    """Erase what everybody has read."""
    for topic in ("in", "out"):
        assert erase(path, topic, [b"3", b"4"]).complete
    delete_and_give_back(path)


ACTS: tuple[Callable[[str], None], ...] = (delete_and_give_back, erase_too)


def load(spark: SparkSession, path: str, topic: str) -> DataFrame:
    given = {"path": path, "subscribe": topic, "startingOffsets": "earliest"}
    return spark.readStream.format("sparklog").options(**given).load()


def meanwhile(df: DataFrame, path: str, acts: str) -> DataFrame:
    """The rows by one task; behind the first of partition 0 the file `acts` says what happens."""

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows and os.path.exists(acts):
                assert batch["partition"][0].as_py() == 0
                act = ACTS[int(Path(acts).read_text())]
                os.unlink(acts)
                act(path)
            yield batch

    return df.mapInArrow(rows, df.schema).coalesce(1)


@pytest.mark.parametrize("by", ["format", "SegmentSink"])
def test_each_record_comes_once(
    log: Log, spark: SparkSession, path: str, tmp_path: Path, by: str
) -> None:
    got: Counter[str] = Counter()

    def keep(df: DataFrame, _: int) -> None:
        got.update(bytes(row.key).decode() for row in df.select("key").collect())

    def start(df: DataFrame, name: str) -> StreamingQuery:
        writer = df.writeStream.option("checkpointLocation", f"{tmp_path}/{name}")
        if name == "tail":
            return writer.foreachBatch(keep).start()
        if by == "SegmentSink":
            return writer.foreachBatch(SegmentSink(path, "out")).start()
        return writer.format("sparklog").options(path=path, topic="out").start()

    acts = tmp_path / "acts"
    append(log, 0)
    copied = meanwhile(load(spark, path, "in"), path, str(acts)).select("key", "value")
    copy = start(copied, "copy")
    copy.processAllAvailable()
    tail = start(load(spark, path, "out"), "tail")
    try:
        tail.processAllAvailable()
        for number in range(len(ACTS)):
            acts.write_text(str(number))
            append(log, number + 1)
            copy.processAllAvailable()
            assert not acts.exists()
            tail.processAllAvailable()
        end = COUNT * (len(ACTS) + 1)
        assert got == Counter(map(str, range(end)))
        left = log.read("out", columns=["key"]).read_all()["key"].to_pylist()
        assert Counter(left) == Counter(str(n).encode() for n in range(end) if n not in (3, 4))
    finally:
        copy.stop()
        tail.stop()
    assert verify(path).ok
