"""SegmentSink under foreachBatch: rows, identity, replays, bad rows."""

import json
import logging
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf

import sparklog
from sparklog.errors import (
    BatchConflictError,
    InvalidRequestError,
    RecordTooLargeError,
    UnknownTopicError,
)
from sparklog.logdir.log_dir_check import DriverLogDir
from sparklog.service.metrics import collect
from sparklog.sink import SegmentSink, open_logs, row_staging, segment_sink
from sparklog.sink.row_staging import RowStaging
from tests.spark.movers import PYTHON

pytestmark = pytest.mark.spark

Numbers = Callable[..., DataFrame]
Run = Callable[..., int]


def table(path: str, topic: str) -> pa.Table:
    with sparklog.open(path) as log:
        return log.read(topic).read_all()


def values(path: str, topic: str) -> list[int]:
    return sorted(int(v) for v in table(path, topic)["value"].to_pylist())


def commits(path: str) -> list[dict[str, Any]]:
    with sparklog.open(path) as log:
        return [row for row in log.commits().to_pylist() if row["writer"] is not None]


@pytest.fixture
def planned(tmp_path: Path) -> Callable[[int, str], str]:
    """A checkpoint in which a batch is planned, for calls outside of a query: its location."""

    def plan(batch: int, offsets: str = "v1\n{}\n0") -> str:
        place = tmp_path / "planned" / "offsets"
        place.mkdir(parents=True, exist_ok=True)
        (place / str(batch)).write_text(offsets)
        return str(place.parent)

    return plan


def test_each_row_once_with_all_columns(
    numbers: Numbers, run_batches: Run, path: str, checkpoint: str
) -> None:
    stream = numbers().selectExpr(
        "key",
        "value",
        "timestamp",
        "array(struct('h' as key, cast(key as binary) as value)) headers",
    )
    sink = SegmentSink(path, "t", partitions=3, compression_type="lz4")
    writer = stream.writeStream.option("checkpointLocation", checkpoint).foreachBatch(sink)
    last = run_batches(writer, 4)
    last = run_batches(writer, 2)
    assert values(path, "t") == list(range(100 * (last + 1)))
    rows = table(path, "t")
    first = rows.filter(pc.equal(rows["value"], b"7")).to_pylist()[0]
    assert first["key"] == b"7"
    assert first["headers"] == [{"key": "h", "value": b"7"}]
    assert first["timestamp"].timestamp() * 1000 == 0  # the rate source's first micro-batch
    by_key: dict[bytes, set[int]] = {}
    for key, partition in zip(rows["key"].to_pylist(), rows["partition"].to_pylist(), strict=True):
        by_key.setdefault(key, set()).add(partition)
    assert all(len(partitions) == 1 for partitions in by_key.values())
    with sparklog.open(path) as log:
        assert log.topic("t").config.retention_ms == -1
        assert log.topic("t").partitions == 3


def test_replay_is_dropped_and_says_when_and_where(
    numbers: Numbers, run_batches: Run, path: str, checkpoint: str, caplog: pytest.LogCaptureFixture
) -> None:
    writer = (
        numbers()
        .writeStream.option("checkpointLocation", checkpoint)
        .foreachBatch(SegmentSink(path, "t"))
    )
    last = run_batches(writer, 2)
    for name in (f"{last}", f".{last}.crc"):
        (Path(checkpoint) / "commits" / name).unlink()
    with caplog.at_level(logging.WARNING, "sparklog.sink"):
        after = run_batches(writer, 2)
    assert f"micro-batch {last} of writer" in caplog.text
    assert "contains its rows since 20" in caplog.text and f"t-0 [{100 * last}, " in caplog.text
    assert values(path, "t") == list(range(100 * (after + 1)))


def test_replan_after_lost_offsets(
    numbers: Numbers, run_batches: Run, path: str, checkpoint: str
) -> None:
    writer = (
        numbers()
        .writeStream.option("checkpointLocation", checkpoint)
        .foreachBatch(SegmentSink(path, "t"))
    )
    last = run_batches(writer, 2)
    for kind in ("offsets", "commits"):  # what a power cut takes: Spark syncs neither
        (Path(checkpoint) / kind / f"{last}").unlink()
        (Path(checkpoint) / kind / f".{last}.crc").unlink()
    with pytest.raises(StreamingQueryException, match=r"BatchConflictError.*another plan"):
        run_batches(writer, 1)
    assert values(path, "t") == list(range(100 * (last + 1)))


def test_deleted_checkpoint_same_writer(
    numbers: Numbers, run_batches: Run, path: str, checkpoint: str
) -> None:
    sink = SegmentSink(path, "t", writerId="mine")
    writer = numbers().writeStream.option("checkpointLocation", checkpoint).foreachBatch(sink)
    run_batches(writer, 1)
    shutil.rmtree(checkpoint)
    with pytest.raises(StreamingQueryException, match="BatchConflictError"):
        run_batches(writer, 1)


@pytest.mark.deep
def test_deleted_checkpoint_whose_query_begins_anew(
    numbers: Numbers, run_batches: Run, path: str, checkpoint: str, tmp_path: Path
) -> None:
    def writer(place: str, where: str = "true", **options: Any) -> Any:
        stream = numbers().where(where).writeStream.option("checkpointLocation", place)
        return stream.foreachBatch(SegmentSink(path, "t", **options))

    last = run_batches(writer(checkpoint), 2)
    shutil.rmtree(checkpoint)
    known = list(range(100 * (last + 1)))
    for place, evidence in ((checkpoint, "checkpoint location"), (f"{tmp_path}/new", "plan")):
        with pytest.raises(StreamingQueryException, match=f"BatchConflictError.*the {evidence} of"):
            run_batches(writer(place), 1)
        assert values(path, "t") == known
    run_batches(writer(f"{tmp_path}/other", "key = '3'"), 1)  # another query
    added = len(values(path, "t")) - len(known)
    assert 0 < added < 100
    last = run_batches(writer(f"{tmp_path}/new", name="again"), 1)
    assert len(values(path, "t")) == len(known) + added + 100 * (last + 1)


@pytest.mark.parametrize(
    "case",
    ["table", *(pytest.param(c, marks=pytest.mark.deep) for c in ("function", "26th column"))],
)
def test_queries_that_differ_in_what_plans_do_not_show(
    spark: SparkSession, numbers: Numbers, run_batches: Run, path: str, checkpoint: str, case: str
) -> None:
    def rows(digit: str) -> DataFrame:
        if case == "function":
            return numbers(10).where(udf(lambda key: key == digit, "boolean")("key"))
        if case == "table":
            return numbers(10).join(spark.createDataFrame([(digit,)], "key string"), "key")
        wide = [f"{number} as c{number}" for number in range(30)]
        return numbers(10).selectExpr(*wide, f"if(key = '{digit}', value, null) as value")

    for digit in "37":
        writer = rows(digit).writeStream.option("checkpointLocation", f"{checkpoint}-{digit}")
        run_batches(writer.foreachBatch(SegmentSink(path, "t")), 1)
    with sparklog.open(path) as log:
        found = log.read("t").read_all()["value"].drop_null().to_pylist()
    assert found == [b"3", b"7"]


def test_columns_that_are_not_written_are_not_read(
    numbers: Numbers, run_batches: Run, path: str, checkpoint: str
) -> None:
    # Arrow has no such interval; it's the second micro-batch that is collected.
    stream = numbers().selectExpr("*", "make_interval(0, 1, 0, 1) as pause")
    writer = stream.writeStream.option("checkpointLocation", checkpoint)
    last = run_batches(writer.foreachBatch(SegmentSink(path, "t")), 3)
    assert values(path, "t") == list(range(100 * (last + 1)))


@pytest.mark.deep
def test_sinks_in_a_thread_pool(
    spark: SparkSession, numbers: Numbers, run_batches: Run, path: str, checkpoint: str
) -> None:
    sinks = [SegmentSink(path, topic, name=topic) for topic in ("t", "u")]

    def both(df: DataFrame, batch: int) -> None:
        spark.sparkContext.setJobGroup("mine", "foreachBatch names its jobs")
        with ThreadPoolExecutor(2) as pool:
            for done in [pool.submit(sink, df, batch) for sink in sinks]:
                done.result()

    # Another query that runs: its session is another one.
    idle = numbers().writeStream.format("noop").option("checkpointLocation", f"{checkpoint}-idle")
    other = idle.trigger(processingTime="1 hour").start()
    try:
        writer = numbers().writeStream.option("checkpointLocation", checkpoint).foreachBatch(both)
        last = run_batches(writer, 2)
    finally:
        other.stop()
    assert values(path, "t") == values(path, "u") == list(range(100 * (last + 1)))
    query_id = json.loads((Path(checkpoint) / "metadata").read_text())["id"]
    assert {row["writer"] for row in commits(path)} == {f"{query_id}/t", f"{query_id}/u"}


def test_copied_checkpoint(
    numbers: Numbers, run_batches: Run, path: str, checkpoint: str, tmp_path: Path
) -> None:
    sink = SegmentSink(path, "t")
    writer = numbers().writeStream.option("checkpointLocation", checkpoint).foreachBatch(sink)
    run_batches(writer, 1)
    copy = str(tmp_path / "copy")
    shutil.copytree(checkpoint, copy)
    last = run_batches(writer, 1)
    other = numbers().writeStream.option("checkpointLocation", copy).foreachBatch(sink)
    with pytest.raises(StreamingQueryException, match="BatchConflictError"):
        run_batches(other, 1)
    assert values(path, "t") == list(range(100 * (last + 1)))


@pytest.mark.deep
def test_removed_between_runs_and_removed_in_one(
    numbers: Numbers, run_batches: Run, path: str, checkpoint: str
) -> None:
    """`rm -rf log checkpoint`, and again from the start; under a running query it is an error."""
    sink, removed = SegmentSink(path, "t"), False

    def write(df: DataFrame, batch: int) -> None:
        sink(df.limit(10), batch)
        if removed:
            shutil.rmtree(path)
            SegmentSink(path, "t", name="another")(df, batch)

    writer = numbers().writeStream.option("checkpointLocation", checkpoint).foreachBatch(write)
    for _ in range(2):
        run_batches(writer, 1)
        assert len(values(path, "t")) == 10
        shutil.rmtree(path)
        shutil.rmtree(checkpoint)
    removed = True
    with pytest.raises(StreamingQueryException, match=r"LogReplacedError: .* no longer contains"):
        run_batches(writer, 1)
    assert not Path(path).exists()


def test_sink_twice(numbers: Numbers, run_batches: Run, path: str, checkpoint: str) -> None:
    sink = SegmentSink(path, "t")
    again = SegmentSink(f"file://{path}/../log/", "t")

    def twice(df: DataFrame, batch: int) -> None:
        sink(df, batch)
        again(df, batch)

    stream = numbers()
    writer = stream.writeStream.option("checkpointLocation", checkpoint).foreachBatch(twice)
    with pytest.raises(StreamingQueryException, match=r"already written .* option name"):
        run_batches(writer, 1)
    assert values(path, "t") == list(range(100))

    named = SegmentSink(path, "u", name="second")

    def both(df: DataFrame, batch: int) -> None:
        sink(df, batch)
        named(df, batch)

    writer = stream.writeStream.option("checkpointLocation", checkpoint).foreachBatch(both)
    last = run_batches(writer, 2)
    assert values(path, "t") == values(path, "u") == list(range(100 * (last + 1)))


def test_one_call_may_write_several_topics_at_once(
    numbers: Numbers, run_batches: Run, path: str, checkpoint: str
) -> None:
    stream = numbers().selectExpr("value", "concat('topic', key) as topic", "0 as partition")
    writer = stream.writeStream.option("checkpointLocation", checkpoint).foreachBatch(
        SegmentSink(path, partitions=2)
    )
    last = run_batches(writer, 2)
    with sparklog.open(path) as log:
        assert sorted(log.topics()) == [f"topic{n}" for n in range(10)]
        ends = {t: log.offsets(t) for t in log.topics()}
    assert all(end == {0: (0, 10 * (last + 1)), 1: (0, 0)} for end in ends.values())
    assert len({row["offset"] for row in commits(path)}) == last + 1  # one record a micro-batch


def test_outgrown_small_path(
    numbers: Numbers,
    run_batches: Run,
    path: str,
    checkpoint: str,
    caplog: pytest.LogCaptureFixture,
    moved_by: str,
) -> None:
    # Micro-batch 3 is 12 MB where the others are tiny; the session's maxResultSize is 8 MB.
    stream = numbers(rows=10).selectExpr(
        "key", "explode(array_repeat(repeat('x', 1000), if(int(value) div 10 = 3, 1200, 1))) value"
    )
    sink = SegmentSink(path, "t", **{"max.message.bytes": 4 << 20})
    writer = stream.writeStream.option("checkpointLocation", checkpoint).foreachBatch(sink)
    with caplog.at_level(logging.INFO, "sparklog.sink"):
        last = run_batches(writer, 5)
    assert ("larger than estimated" in caplog.text) == (moved_by == PYTHON)
    sizes = {row["batch"]: row["end"] - row["first"] for row in commits(path)}
    assert sizes == {n: 12_000 if n == 3 else 10 for n in range(last + 1)}


@pytest.mark.one_path
def test_a_batch_that_spark_knows_to_be_large_is_not_collected(
    spark: SparkSession,
    path: str,
    planned: Callable[[int], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # 100 MB by Spark's estimate; the offsets say nothing of it, and the batches before are tiny.
    few = spark.range(10).selectExpr("cast(id as string) value")
    many = spark.range(13_000_000).where("id % 1300000 = 0").selectExpr("cast(id as string) value")
    collected: list[str] = []
    collect = RowStaging.collect

    def noted(self: RowStaging, rows: DataFrame) -> Any:
        collected.append(self.plan.label.rpartition("-")[2])
        return collect(self, rows)

    monkeypatch.setattr(RowStaging, "collect", noted)
    for batch, rows in enumerate([few, few, many]):
        place = planned(batch)
        SegmentSink(path, "t", writerId="w", checkpointLocation=place, jvm=False)(rows, batch)
    assert collected == ["1"]  # the second: nothing is known of a writer's first
    assert [row["end"] - row["first"] for row in commits(path)] == [10, 10, 10]


@pytest.mark.deep
def test_tasks_that_can_not_write_show_outside(
    spark: SparkSession,
    small_disk: Path,
    planned: Callable[[int], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = str(small_disk / "log")
    monkeypatch.setattr(row_staging, "is_surely_large", lambda df: True)
    many = spark.range(2000).selectExpr("repeat('x', 10000) value")  # 20 MB, and there are 8
    options = {"writerId": "w", "max.message.bytes": 4 << 20}
    try:
        sink = SegmentSink(path, "t", checkpointLocation=planned(0), **options)
        with pytest.raises(Exception, match=r"StorageUnavailableError: can't write .* space left"):
            sink(many, 0)
        assert not [*Path(path).glob("sparklog-chunk-*")]
        assert collect(path).directories[0].failing
        sink(spark.range(5).selectExpr("cast(id as string) value"), 0)
        assert not collect(path).directories[0].failing
        assert values(path, "t") == [0, 1, 2, 3, 4]
    finally:
        open_logs.close(path)


# case: the good rows' columns, one bad row's, options, words of the error
BAD_ROWS: dict[str, tuple[list[str], list[str], dict[str, Any], str]] = {
    "partition out of range": (["1 partition"], ["3 partition"], {}, "no partition 3"),
    "negative partition": (["1 partition"], ["-1 partition"], {}, "no partition -1"),
    "null topic": (["'t' topic"], ["cast(null as string) topic"], {"topic": None}, "null topic"),
    "topic name": (["'t' topic"], ["'a/b' topic"], {"topic": None}, "a/b"),
}
BAD_COLUMNS: dict[str, tuple[list[str], dict[str, Any], str]] = {
    "no value": (["'v' as key"], {}, "column value is missing"),
    "no topic": (["'v' as value"], {"topic": None}, "no topic"),
    "value": (["1.5 as value"], {}, "column value has type decimal"),
    "partition": (["'v' as value", "1L as partition"], {}, "partition has type bigint"),
    "headers": (["'v' as value", "map('a', 'b') as headers"], {}, "column headers has type map"),
    "timestamp": (["'v' as value", "5L as timestamp"], {}, "column timestamp has type bigint"),
}


@pytest.mark.parametrize("case", BAD_ROWS)
def test_bad_rows_fail_before_anything_is_appended(
    spark: SparkSession, path: str, planned: Callable[..., str], case: str
) -> None:
    good, bad, options, words = BAD_ROWS[case]
    given = {"topic": "t", "partitions": 3, "writerId": "w", **options}
    sink = SegmentSink(path, checkpointLocation=planned(0), **given)
    rows = spark.range(5).selectExpr("'good' as value", *good)
    with pytest.raises(InvalidRequestError, match=words):
        sink(rows.union(spark.range(1).selectExpr("'bad' as value", *bad)), 0)
    with sparklog.open(path, "rw") as log:
        assert all(end == (0, 0) for t in log.topics() for end in log.offsets(t).values())
    assert not [n for n in Path(path).iterdir() if n.name.startswith("sparklog-chunk-")]


@pytest.mark.one_path
@pytest.mark.parametrize("case", BAD_COLUMNS)
def test_bad_columns_fail_before_anything_runs(spark: SparkSession, path: str, case: str) -> None:
    columns, options, words = BAD_COLUMNS[case]
    sink = SegmentSink(path, **{"topic": "t", **options})
    with pytest.raises(InvalidRequestError, match=words):
        sink(spark.range(1).selectExpr(*columns), 0)
    assert not Path(path).exists()


def test_unknown_topic_with_creation_off(
    spark: SparkSession, path: str, planned: Callable[..., str]
) -> None:
    options = {"writerId": "w", "checkpointLocation": planned(0)}
    options["auto.create.topics.enable"] = "false"
    df = spark.range(5).selectExpr("'v' as value", "'nope' as topic")
    with pytest.raises(UnknownTopicError, match=r"nope is not in .*auto.create.topics.enable"):
        SegmentSink(path, **options)(df, 0)
    with pytest.raises(UnknownTopicError, match="nope"):
        SegmentSink(path, "nope", **options)(df.drop("topic"), 0)


def test_record_over_max_message_bytes(
    spark: SparkSession, path: str, planned: Callable[..., str]
) -> None:
    options = {"writerId": "w", "checkpointLocation": planned(0), "max.message.bytes": 2000}
    df = spark.range(3).selectExpr("repeat('x', if(id = 2, 5000, 10)) as value")
    with pytest.raises(RecordTooLargeError, match=r"max.message.bytes"):
        SegmentSink(path, "t", **options)(df, 0)
    with sparklog.open(path) as log:
        assert log.offsets("t") == {0: (0, 0)}


def test_a_failed_batch_may_be_tried_again(
    spark: SparkSession, path: str, planned: Callable[..., str]
) -> None:
    sink = SegmentSink(path, "t", writerId="w", checkpointLocation=planned(0))
    with pytest.raises(InvalidRequestError):
        sink(spark.range(1).selectExpr("'v' as value", "9 as partition"), 0)
    sink(spark.range(7).selectExpr("cast(id as string) as value"), 0)
    assert values(path, "t") == list(range(7))


def test_same_number_with_other_offsets_is_a_conflict(
    spark: SparkSession, path: str, planned: Callable[..., str]
) -> None:
    df = spark.range(7).selectExpr("cast(id as string) as value")
    SegmentSink(path, "t", writerId="w", checkpointLocation=planned(0))(df, 0)
    segment_sink.RUNS.clear()  # as in a new process
    SegmentSink(path, "t", writerId="w", checkpointLocation=planned(0))(df, 0)  # a replay
    assert values(path, "t") == list(range(7))
    segment_sink.RUNS.clear()
    with pytest.raises(BatchConflictError, match=r"batch 0 .*`name`.*`writerId`"):
        SegmentSink(path, "t", writerId="w", checkpointLocation=planned(0, "v1\n{}\n1"))(df, 0)
    assert values(path, "t") == list(range(7))


@pytest.mark.one_path
def test_outside_of_a_query_the_error_names_the_options(spark: SparkSession, path: str) -> None:
    df = spark.range(1).selectExpr("'v' as value")
    with pytest.raises(InvalidRequestError, match=r"writerId .*checkpointLocation"):
        SegmentSink(path, "t")(df, 0)
    with pytest.raises(InvalidRequestError, match=r"offsets/0 can't be read.*checkpointLocation"):
        SegmentSink(path, "t", writerId="w", checkpointLocation="/nowhere")(df, 0)


def test_executor_that_sees_another_directory(
    spark: SparkSession,
    path: str,
    planned: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = DriverLogDir.read

    def elsewhere(home: str, *_: object) -> DriverLogDir:
        real = here(home)
        return DriverLogDir(home, "driver-host", "another boot", real.device, real.inode + 1)

    monkeypatch.setattr(DriverLogDir, "read", elsewhere)
    df = spark.range(5).selectExpr("'v' as value")
    with pytest.raises(InvalidRequestError, match=rf"on host .* can't see the log {path} of the"):
        SegmentSink(path, "t", writerId="w", checkpointLocation=planned(0))(df, 0)
    with sparklog.open(path) as log:
        assert log.offsets("t") == {0: (0, 0)}


def test_null_headers_and_keys_and_values(
    spark: SparkSession, path: str, planned: Callable[..., str]
) -> None:
    df = spark.range(4).selectExpr(
        "if(id < 2, null, cast(cast(id as string) as binary)) as key",
        "if(id = 3, null, cast(cast(id as string) as binary)) as value",
        "if(id = 1, array(struct('h' as key, cast(null as binary) as value)), null) as headers",
    )
    SegmentSink(path, "t", writerId="w", checkpointLocation=planned(0))(df.coalesce(1), 0)
    rows = table(path, "t").to_pylist()
    assert [row["key"] is None for row in rows] == [True, True, False, False]
    assert [row["value"] is None for row in rows] == [False, False, False, True]
    assert [row["headers"] for row in rows] == [[], [{"key": "h", "value": None}], [], []]


def test_json_of_planned_offsets_is_what_the_fingerprint_covers(
    numbers: Numbers, run_batches: Run, path: str, checkpoint: str
) -> None:
    import hashlib

    sink = SegmentSink(path, "t")
    run_batches(
        numbers().writeStream.option("checkpointLocation", checkpoint).foreachBatch(sink), 1
    )
    query_id = json.loads((Path(checkpoint) / "metadata").read_text())["id"]
    for row in commits(path):
        plan = (Path(checkpoint) / "offsets" / str(row["batch"])).read_bytes()
        assert row["fingerprint"] == hashlib.sha256(plan).hexdigest()
        assert row["writer"] == query_id
