"""`format("sparklog")` on a checkpoint: the changes of its state, as a batch and as a stream."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from sparklog import checkpoint as checkpoints
from tests.checkpoint.conftest import Golden, golden, unpacked

__all__ = ["golden", "unpacked"]
pytestmark = pytest.mark.spark

Follow = Callable[..., dict[int, list[int]]]


def expected(path: Path, first: int, end: int) -> list[dict[str, Any]]:
    return sorted(checkpoints.changes(path, start=first, end=end).read_all().to_pylist(), key=str)


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    return sorted((row.asDict(recursive=True) for row in frame.collect()), key=str)


@pytest.fixture
def follow(spark: SparkSession, tmp_path: Path) -> Follow:
    """Run a stream over all that is there: {micro-batch: the checkpoint's batches in it}."""

    def run(path: Path, **options: Any) -> dict[int, list[int]]:
        seen: dict[int, list[int]] = {}

        def take(frame: DataFrame, number: int) -> None:
            seen[number] = sorted({row.batch for row in frame.select("batch").collect()})

        reader = spark.readStream.format("sparklog").options(stateOperator=0, **options)
        query = (
            reader.load(str(path))
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", str(tmp_path / "follower"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return seen

    return run


def full(found: dict[int, list[int]]) -> dict[int, list[int]]:
    """Without the empty micro-batch that a query which starts at the end begins with."""
    return {number: batches for number, batches in found.items() if batches}


def commit_to(path: Path, kept: Path, last: int) -> None:
    """Let the checkpoint stand at batch `last` of the one that is kept whole elsewhere."""
    shutil.rmtree(path)
    shutil.copytree(kept, path)
    for log in ("commits", "offsets"):
        for file in (path / log).iterdir():
            if file.name.isdecimal() and int(file.name) > last:
                file.unlink()


@pytest.mark.deep
def test_a_batch(spark: SparkSession, golden: Golden) -> None:
    path = golden("hdfs")
    reader = spark.read.format("sparklog").option("stateOperator", 0)
    whole = reader.load(str(path))
    assert whole.dtypes == [
        ("batch", "bigint"), ("partition", "int"), ("change", "string"),
        ("key", "struct<k:bigint>"), ("value", "struct<sum:bigint>"),
    ]  # fmt: skip
    assert whole.rdd.getNumPartitions() == 2
    assert rows(whole) == expected(path, 4, 14)
    some = reader.option("startingOffsets", 6).option("endingOffsets", 9)
    assert rows(some.load(str(path))) == expected(path, 6, 9)
    chosen = reader.schema("change string, batch long").load(str(path))
    assert {tuple(row) for row in chosen.collect()} == {("put", n) for n in range(6, 9)}


def test_column_families(spark: SparkSession, golden: Golden) -> None:
    path = golden("processed")
    reader = spark.read.format("sparklog").option("stateOperator", 0)
    assert rows(reader.load(str(path))) == expected(path, 0, 6)
    lists = reader.option("stateColumnFamily", "seen").load(str(path))
    assert lists.select("key.k", "value.v").distinct().count() == 30


@pytest.mark.deep
def test_a_stream(golden: Golden, follow: Follow) -> None:
    """From the earliest batch that is kept, restarted with more batches, in steps of three."""
    path = golden("hdfs")
    kept = path.with_name("kept")
    shutil.copytree(path, kept)
    commit_to(path, kept, 9)
    options = {"startingOffsets": "earliest", "maxBatchesPerTrigger": 3}
    assert follow(path, **options) == {0: [4, 5, 6], 1: [7, 8, 9]}
    commit_to(path, kept, 13)
    assert follow(path, **options) == {2: [10, 11, 12], 3: [13]}
    assert follow(path, **options) == {}


@pytest.mark.deep
def test_a_stream_that_starts_at_the_end(golden: Golden, follow: Follow) -> None:
    path = golden("ids")
    kept = path.with_name("kept")
    shutil.copytree(path, kept)
    commit_to(path, kept, 6)
    assert full(follow(path)) == {}
    commit_to(path, kept, 9)
    assert full(follow(path)) == {1: [7, 8, 9]}


@pytest.mark.deep
def test_a_log_backed_one(golden: Golden, follow: Follow) -> None:
    path = golden("changelog")
    checkpoints.import_(path)
    assert follow(path, startingOffsets=11) == {0: [11, 12, 13]}


@pytest.mark.deep
def test_changes_that_are_gone(
    spark: SparkSession, golden: Golden, follow: Follow, tmp_path: Path
) -> None:
    path = golden("hdfs")
    lost = r"data loss: changes of batches \[2, 4\) of operator 0, store default .*changes is 4"
    with pytest.raises(StreamingQueryException, match=lost):
        follow(path, startingOffsets=2)
    shutil.rmtree(tmp_path / "follower")
    assert follow(path, startingOffsets=2, failOnDataLoss="false") == {0: list(range(4, 14))}
    reader = spark.read.format("sparklog").option("stateOperator", 0)
    with pytest.raises(PySparkException, match=lost):
        reader.option("startingOffsets", 2).load(str(path)).collect()


@pytest.mark.deep
def test_what_can_not_be_read(spark: SparkSession, golden: Golden) -> None:
    reader = spark.read.format("sparklog")
    with pytest.raises(PySparkException, match="has no stateful operator 3: its operators are 0"):
        reader.option("stateOperator", 3).load(str(golden("hdfs")))
    with pytest.raises(PySparkException, match="writes snapshots, but no changelogs"):
        reader.option("stateOperator", 0).load(str(golden("rocksdb"))).collect()
    with pytest.raises(PySparkException, match="option subscribe has no meaning"):
        reader.option("subscribe", "t").load(str(golden("ids")))


def test_the_sink_refuses(spark: SparkSession, tmp_path: Path) -> None:
    writer = spark.range(1).selectExpr("cast(id as string) as value").write.format("sparklog")
    with pytest.raises(PySparkException, match=r"stateOperator has no meaning.*it can be read"):
        writer.mode("append").option("stateOperator", 0).save(str(tmp_path / "log"))
