"""Spark writes and reads a log whose home is a store: no log dir, nothing shared but the URL."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import sparklog
from sparklog import sink
from sparklog.sink import SegmentSink

Numbers = Callable[..., DataFrame]
Run = Callable[..., int]


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    url = f"file://{tmp_path}/home"
    yield url
    sink.close(url)


def values(url: str, topic: str) -> list[int]:
    with sparklog.open(url) as log:
        return sorted(int(v) for v in log.read(topic).read_all()["value"].to_pylist())


@pytest.mark.deep
def test_each_micro_batch_once_by_both_ways(
    numbers: Numbers, run_batches: Run, url: str, checkpoint: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The first one goes through tasks, the next ones through the driver: one PUT each."""
    writer = (
        numbers()
        .writeStream.option("checkpointLocation", checkpoint)
        .foreachBatch(SegmentSink(url, "t", partitions=3))
    )
    last = run_batches(writer, 3)
    for name in (f"{last}", f".{last}.crc"):
        (Path(checkpoint) / "commits" / name).unlink()
    with caplog.at_level(logging.WARNING, "sparklog.sink"):
        after = run_batches(writer, 2)
    assert f"micro-batch {last} of writer" in caplog.text
    assert values(url, "t") == list(range(100 * (after + 1)))
    with sparklog.open(url) as log:
        assert log.topic("t").partitions == 3
        assert log.commits().num_rows == 3 * (after + 1)


@pytest.mark.also_python("a store is read there")
def test_the_data_source_writes_and_reads(
    spark: SparkSession, numbers: Numbers, run_batches: Run, url: str, tmp_path: Path
) -> None:
    frame = spark.range(60_000).selectExpr("cast(id as string) key", "repeat(id, 20) value")
    given = {"path": url, "storageOptions": "{}"}
    frame.repartition(3).write.format("sparklog").options(topic="b", partitions=4, **given).mode(
        "append"
    ).save()
    writer = (
        numbers()
        .writeStream.format("sparklog")
        .options(topic="t", checkpointLocation=f"{tmp_path}/one", **given)
    )
    last = run_batches(writer, 2)
    assert values(url, "t") == list(range(100 * (last + 1)))
    read = spark.read.format("sparklog").options(subscribe="b", minPartitions="9", **given).load()
    assert read.count() == 60_000
    assert read.selectExpr("cast(cast(key as string) as long) k").distinct().count() == 60_000


@pytest.mark.also_python("a store is read there")
@pytest.mark.deep
def test_a_query_follows_it_and_is_registered(
    spark: SparkSession, numbers: Numbers, run_batches: Run, url: str, tmp_path: Path
) -> None:
    write = (
        numbers()
        .writeStream.option("checkpointLocation", f"{tmp_path}/one")
        .foreachBatch(SegmentSink(url, "t", partitions=2))
    )
    run_batches(write, 1)
    follow = (
        spark.readStream.format("sparklog")
        .options(path=url, subscribe="t", startingOffsets="earliest")
        .load()
        .writeStream.option("checkpointLocation", f"{tmp_path}/two")
        .foreachBatch(SegmentSink(url, "u", partitions=2))
    )
    run_batches(follow, 1)
    last = run_batches(write, 1)
    run_batches(follow, 1)
    assert values(url, "u") == list(range(100 * (last + 1)))
    with sparklog.open(url) as log:
        readers = log.readers().to_pylist()
        assert {(r["kind"], r["topic"]) for r in readers} == {("query", "t")}
        assert {r["partition"] for r in readers} == {0, 1}
