"""Rows staged in Spark's JVM: what ends the job, what it leaves, and that it is one job."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark import InheritableThread
from pyspark.sql import DataFrame, SparkSession

import sparklog
from sparklog.errors import InvalidRequestError
from sparklog.sink import SegmentSink
from tests.waiting import until

pytestmark = pytest.mark.spark

SLOW = "coalesce(reflect('java.lang.Thread', 'sleep', cast(1 as bigint)), '')"
Sink = Callable[..., Callable[[DataFrame], None]]


@pytest.fixture
def sink(path: str, tmp_path: Path) -> Sink:
    """Writes a DataFrame as a micro-batch, outside of a query; `options` as the sink's."""

    def make(topic: str | None = "t", **options: Any) -> Callable[[DataFrame], None]:
        batches = iter(range(100))

        def write(df: DataFrame) -> None:
            batch = next(batches)
            place = tmp_path / "planned" / "offsets"
            place.mkdir(parents=True, exist_ok=True)
            (place / str(batch)).write_text(f"v1\n{{}}\n{batch}")
            location = str(place.parent)
            SegmentSink(path, topic, writerId="w", checkpointLocation=location, **options)(
                df, batch
            )

        return write

    return make


def staged(path: str) -> list[str]:
    return [file.name for file in Path(path).glob("sparklog-chunk-*")]


def count(path: str, topic: str = "t") -> int:
    with sparklog.open(path) as log:
        return log.read(topic).read_all().num_rows


@pytest.mark.parametrize("interrupt", [True, False])
def test_a_cancelled_job_ends_and_leaves_nothing(
    spark: SparkSession, sink: Sink, path: str, interrupt: bool
) -> None:
    write, told, group = sink(), [], f"to be cancelled, {interrupt}"
    slow = spark.range(0, 100_000, 1, 2).selectExpr(f"concat(repeat('x', 20000), {SLOW}) value")
    write(spark.range(5).selectExpr("cast(id as string) value"))

    def run() -> None:
        spark.sparkContext.setJobGroup(group, "of a test", interrupt)
        try:
            write(slow)
        except Exception as error:
            told.append(error)

    thread = InheritableThread(target=run)
    thread.start()
    until(lambda: len(staged(path)) >= 2)
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup(group)
    spark.sparkContext.cancelJobGroup(group)
    thread.join(240)
    assert not thread.is_alive()
    assert "cancelled" in str(told[0])
    assert len(jobs) == 1
    until(lambda: not staged(path))
    assert count(path) == 5
    write(spark.range(7).selectExpr("cast(id as string) value"))
    assert count(path) == 12


def test_a_query_that_is_stopped_at_work_goes_on_where_it_was(
    spark: SparkSession, path: str, checkpoint: str, run_batches: Callable[..., int]
) -> None:
    def writer(work: str) -> Any:
        stream = (
            spark.readStream.format("rate-micro-batch")
            .options(rowsPerBatch=5000, numPartitions=2)
            .load()
            .selectExpr(f"concat(cast(value as string), repeat(' ', 9000), {work}) value")
        )
        sink = SegmentSink(path, "t")
        return stream.writeStream.option("checkpointLocation", checkpoint).foreachBatch(sink)

    query = writer(SLOW).trigger(availableNow=True).start()
    until(lambda: len(staged(path)) >= 2)
    query.stop()
    assert not query.isActive
    until(lambda: not staged(path))
    last = run_batches(writer("''"), 2)
    with sparklog.open(path) as log:
        values = sorted(int(value) for value in log.read("t").read_all()["value"].to_pylist())
    assert values == list(range(5000 * (last + 1)))


def test_a_task_that_fails_leaves_nothing(spark: SparkSession, sink: Sink, path: str) -> None:
    """The other task takes so long that Spark ends it, however busy the machine is."""
    value = f"if(id < 50000, {SLOW}, if(id = 60000, raise_error('boom'), ''))"
    rows = spark.range(0, 100_000, 1, 2).selectExpr(f"concat(repeat('x', 5000), {value}) value")
    with pytest.raises(Exception, match="boom"):
        sink()(rows)
    until(lambda: not staged(path))


def test_a_task_that_fails_takes_with_it_what_others_have_staged(
    spark: SparkSession, sink: Sink, path: str
) -> None:
    """The first task has ended, and Spark has its answer, when the second one fails."""
    end = f"concat({SLOW}, if(id = 1999, raise_error('boom'), 'x'))"
    rows = spark.range(0, 2000, 1, 2).selectExpr(f"if(id < 1000, repeat('x', 5000), {end}) value")
    with pytest.raises(Exception, match="boom"):
        sink()(rows)
    until(lambda: not staged(path))


def test_a_bad_row_is_an_error_of_the_driver_and_leaves_nothing(
    spark: SparkSession, sink: Sink, path: str
) -> None:
    rows = spark.range(0, 100_000, 1, 2).selectExpr(
        "repeat('x', 5000) value", "if(id = 90000, 7, 0) partition"
    )
    with pytest.raises(InvalidRequestError, match="no partition 7"):
        sink()(rows)
    assert not staged(path)


@pytest.mark.parametrize("jvm", [True, False])
def test_rows_come_by_any_plan(spark: SparkSession, sink: Sink, path: str, jvm: bool) -> None:
    """Shuffled, cached, of a file's columns, of no partition; with columns that nobody wants."""
    write = sink(partitions=3, jvm=jvm)
    rows = spark.range(1000).selectExpr(
        "id",
        "cast(id as string) key",
        "make_interval(0, 0, 0, id) why",
        "cast(cast(id as string) as binary) value",
    )
    write(rows)
    write(rows.repartition(3).sort("id").groupBy("key").agg({"value": "max"}).toDF("key", "value"))
    write(rows.cache())
    rows.unpersist()
    rows.select("key", "value").write.parquet(f"{path}-parquet")
    write(spark.read.parquet(f"{path}-parquet"))
    write(rows.where("id < 0"))
    write(spark.createDataFrame([], "value string"))
    assert count(path) == 4000
    with pytest.raises(Exception, match=r"AMBIGUOUS|ambiguous"):
        write(rows.selectExpr("value", "key value"))


def test_who_stages_the_rows_is_said_once(
    spark: SparkSession, sink: Sink, caplog: pytest.LogCaptureFixture
) -> None:
    rows = spark.range(5).selectExpr("cast(id as string) value")
    with caplog.at_level(logging.INFO, "sparklog"):
        write = sink(name="said")
        for _ in range(3):
            write(rows)
        sink(name="said too", jvm=False)(rows)
    said = [
        record.getMessage()
        for record in caplog.records
        if "stages rows" in record.msg % record.args
    ]
    assert said == [
        "w/said: stages rows in the JVM",
        "w/said too: stages rows in Python: option jvm is false",
    ]
