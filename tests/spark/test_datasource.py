"""format("sparklog") for writing, several queries on one log, and log to log."""

import os
import re
import shutil
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import sparklog
from sparklog.logdir.chunk_files import CHUNK_PREFIX
from sparklog.sink import SegmentSink
from sparklog.storage.staging import chunk_label
from tests.waiting import until

pytestmark = pytest.mark.spark

Numbers = Callable[..., DataFrame]
Run = Callable[..., int]


def values(path: str, topic: str) -> list[int]:
    with sparklog.open(path) as log:
        return sorted(
            int(v) for v in log.read(topic, columns=["value"]).read_all()["value"].to_pylist()
        )


def test_batch_write_is_one_commit_and_leaves_the_log_closed(
    spark: SparkSession, path: str
) -> None:
    df = spark.range(0, 1000, 1, 4).selectExpr(
        "cast(id as string) key", "cast(id as string) value", "concat('t', id % 3) topic"
    )
    df.write.format("sparklog").mode("append").option("partitions", 2).save(path)
    with sparklog.open(path) as log:
        assert sorted(log.topics()) == ["t0", "t1", "t2"]
        assert len({row["offset"] for row in log.commits().to_pylist()}) == 1
    assert sorted(v for t in ("t0", "t1", "t2") for v in values(path, t)) == list(range(1000))
    names = {entry.name for entry in Path(path).iterdir()}
    assert ".kafka_cleanshutdown" in names and "sparklog_open" not in names
    assert not [name for name in names if name.startswith("sparklog-chunk-")]


def test_batch_write_that_fails_leaves_nothing(spark: SparkSession, path: str) -> None:
    df = spark.range(0, 100, 1, 2).selectExpr(
        "cast(id as string) value", "if(id = 77, 9, 0) as partition"
    )
    with pytest.raises(PySparkException, match="no partition 9"):
        df.write.format("sparklog").mode("append").option("topic", "t").save(path)
    with sparklog.open(path) as log:
        assert log.offsets("t") == {0: (0, 0)}
    assert not [n for n in Path(path).iterdir() if n.name.startswith("sparklog-chunk-")]


@pytest.mark.one_path
@pytest.mark.parametrize("jvm", ["true", pytest.param("false", marks=pytest.mark.deep)])
def test_two_columns_of_one_name_are_refused(spark: SparkSession, path: str, jvm: str) -> None:
    for columns in ("'a' value, 'b' value", "'a' value, 'b' VALUE", "'a' value, 'k' Key, 'k' key"):
        df = spark.sql(f"select {columns}")
        writer = df.write.format("sparklog").mode("append").options(topic="t", jvm=jvm)
        with pytest.raises(PySparkException, match="is ambiguous: 2 columns have this name"):
            writer.save(path)
    assert not Path(path).exists()


def test_sql_has_views_and_refuses_tables(spark: SparkSession, path: str) -> None:
    """Spark gives a table's options to no Python data source: it could be made, and never read."""
    with sparklog.open(path, "rw") as log:
        log.create_topic("t")
        log.append("t", pa.table({"value": ["a", "b"]}))
    given = f"OPTIONS (path '{path}', subscribe 't')"
    with pytest.raises(PySparkException, match="use CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE held USING sparklog {given}")
    spark.sql(f"CREATE TEMPORARY VIEW seen USING sparklog {given}")
    assert spark.sql("SELECT count(*) FROM seen").first()[0] == 2
    spark.sql("DROP VIEW seen")


@pytest.mark.one_path
def test_every_call_that_would_make_a_table_is_refused(
    spark: SparkSession, numbers: Numbers, path: str, checkpoint: str
) -> None:
    """Spark would keep a table that can be neither read nor written."""
    df, given = spark.sql("SELECT 'a' value"), {"path": path, "topic": "t"}
    sql = f"USING sparklog OPTIONS (path '{path}', topic 't')"
    stream = numbers().writeStream.format("sparklog").options(**given)
    stream = stream.option("checkpointLocation", checkpoint)
    calls: dict[str, Callable[[], object]] = {
        "create": lambda: df.writeTo("made").using("sparklog").options(**given).create(),
        "replace": lambda: df.writeTo("made").using("sparklog").options(**given).createOrReplace(),
        "save": lambda: df.write.format("sparklog").options(**given).saveAsTable("made"),
        "append": lambda: df.write.format("sparklog").mode("append").saveAsTable("made", **given),
        "stream": lambda: stream.toTable("made"),
        "table": lambda: spark.sql(f"CREATE TABLE made (value binary) {sql}"),
        "select": lambda: spark.sql(f"CREATE TABLE made {sql} AS SELECT 'a' value"),
        "catalog": lambda: spark.catalog.createTable("made", path, "sparklog", df.schema),
    }
    for name, call in calls.items():
        with pytest.raises(PySparkException, match=r"no table was created or") as told:
            call()
        assert "CREATE TEMPORARY VIEW" in str(told.value), name
        assert not spark.catalog.tableExists("made"), name
    assert not Path(path).exists()
    spark.read.schema("value binary").format("sparklog").options(path=path, subscribe="t")


@pytest.mark.one_path
@pytest.mark.deep
def test_a_table_that_sparklog_would_replace_stays(
    spark: SparkSession, path: str, tmp_path: Path
) -> None:
    """Spark drops the table that is replaced before it asks the catalog to make the new one."""
    df, given = spark.sql("SELECT 'a' value"), {"path": path, "topic": "t"}
    sql = f"TABLE stays (value binary) USING sparklog OPTIONS (path '{path}', topic 't')"
    write, save = df.writeTo("stays").using("sparklog"), df.write.format("sparklog")
    at = f"USING parquet LOCATION '{tmp_path}/stays'"
    spark.sql(f"CREATE TABLE stays {at} AS SELECT 'kept' value")
    for call in (
        lambda: write.options(**given).createOrReplace(),
        lambda: write.options(**given).replace(),
        lambda: spark.sql(f"CREATE OR REPLACE {sql}"),
        lambda: spark.sql(f"REPLACE {sql}"),
    ):
        with pytest.raises(PySparkException, match=r"no table was created or replaced\. To write"):
            call()
        assert [row.value for row in spark.table("stays").collect()] == ["kept"]
    with pytest.raises(Exception, match="does not allow create table as select"):  # Spark's own
        save.mode("overwrite").options(**given).saveAsTable("stays")
    assert [row.value for row in spark.table("stays").collect()] == ["kept"]
    spark.sql("DROP TABLE stays")
    assert not Path(path).exists()


@pytest.mark.one_path
@pytest.mark.deep
def test_a_topic_that_is_not_utf8_is_refused(spark: SparkSession, path: str) -> None:
    """Spark's strings hold any bytes."""
    df = spark.sql("SELECT 'a' value, 't' topic UNION ALL SELECT 'b', cast(X'74FF' AS string)")
    texts = set()
    for jvm in ("true", "false"):
        with pytest.raises(PySparkException, match="InvalidRequestError") as told:
            df.coalesce(1).write.format("sparklog").mode("append").option("jvm", jvm).save(path)
        texts.update(re.findall("InvalidRequestError: (.*)", str(told.value)))
    (text,) = {text.strip() for text in texts}
    assert "t\ufffd" in text


@pytest.mark.one_path
def test_overwrite_and_wrong_options_are_refused(spark: SparkSession, path: str) -> None:
    df = spark.range(1).selectExpr("'v' as value")
    writer = df.write.format("sparklog").option("topic", "t")
    with pytest.raises(PySparkException, match="can't be overwritten"):
        writer.mode("overwrite").save(path)
    with pytest.raises(PySparkException, match=r"kafka\.bootstrap\.servers .*use option path"):
        writer.mode("append").option("kafka.bootstrap.servers", "x").save(path)


def test_stream_write_is_exactly_once(
    numbers: Numbers, run_batches: Run, path: str, checkpoint: str
) -> None:
    writer = (
        numbers()
        .writeStream.format("sparklog")
        .option("path", path)
        .option("topic", "t")
        .option("partitions", "2")
        .option("checkpointLocation", checkpoint)
    )
    last = run_batches(writer, 2)
    for name in (f"{last}", f".{last}.crc"):
        (Path(checkpoint) / "commits" / name).unlink()
    last = run_batches(writer, 2)  # replays the last one first
    assert values(path, "t") == list(range(100 * (last + 1)))
    until(lambda: not Path(path, "sparklog_open").exists())
    assert Path(path, ".kafka_cleanshutdown").exists(), "left open though no query runs"
    assert not [n for n in Path(path).iterdir() if n.name.startswith("sparklog-chunk-")]
    for kind in ("offsets", "commits"):
        (Path(checkpoint) / kind / f"{last}").unlink()
        (Path(checkpoint) / kind / f".{last}.crc").unlink()
    with pytest.raises(StreamingQueryException, match="BatchConflictError"):
        run_batches(writer, 1)


def test_files_of_lost_attempts_go_with_the_next_commit(
    numbers: Numbers, path: str, checkpoint: str
) -> None:
    """An attempt that is killed with its executor reports nothing to commit or abort."""

    def with_staged_files(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            names = [name for name in os.listdir(path) if name.startswith(CHUNK_PREFIX)]
            texts = [f"{n:0500}" for n in range(batch.num_rows)]
            yield pa.record_batch({"key": [",".join(names)] * len(texts), "value": texts})

    rows = numbers(rows=60_000, partitions=1).mapInArrow(
        with_staged_files, "key string, value string"
    )
    writer = rows.writeStream.format("sparklog").options(path=path, topic="t")
    writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    query = writer.start()
    assert query.awaitTermination(240) and query.exception() is None
    with sparklog.open(path) as log:
        keys = log.read("t", columns=["key"]).read_all()["key"].unique().to_pylist()
    seen = {name for key in keys for name in bytes(key).decode().split(",") if name}
    own, other = (f"{CHUNK_PREFIX}{chunk_label(query.id, n)}-0-" for n in (0, 7))
    assert seen and all(name.startswith(own) for name in seen)
    left = [Path(path, f"{own}killed"), Path(path, f"{own.replace('-0-0-', '-1-0-')}lost")]
    alive = [Path(path, f"{other}later"), Path(path, f"{CHUNK_PREFIX}w1234-0-batch")]
    for file in (*left, *alive):
        file.write_bytes(b"rows")
    assert writer.start().awaitTermination(240)
    assert sorted(Path(path).glob(f"{CHUNK_PREFIX}*")) == sorted(alive)


@pytest.mark.parametrize("name", ["named", None])
def test_checkpoint_by_the_sessions_conf(
    spark: SparkSession, numbers: Numbers, path: str, checkpoint: str, name: str | None
) -> None:
    Path(checkpoint, "of another query").mkdir(parents=True)
    spark.conf.set("spark.sql.streaming.checkpointLocation", checkpoint)
    try:
        writer = numbers().writeStream.format("sparklog").option("path", path).option("topic", "t")
        if name is not None:
            writer = writer.queryName(name)
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(240)
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
    assert query.exception() is None
    assert values(path, "t") == list(range(100))
    with sparklog.open(path) as log:
        assert query.id in {row["writer"] for row in log.commits().to_pylist()}


@pytest.mark.deep
def test_output_mode_complete_appends_each_result(
    numbers: Numbers, run_batches: Run, path: str, checkpoint: str
) -> None:
    counted = numbers().groupBy("key").count().selectExpr("cast(count as string) value")
    writer = counted.writeStream.format("sparklog").outputMode("complete").option("path", path)
    run_batches(writer.option("topic", "t").option("checkpointLocation", checkpoint), 2)
    assert values(path, "t") == [10] * 10 + [20] * 10  # as Spark's Kafka sink does


def test_deleted_checkpoint(numbers: Numbers, run_batches: Run, path: str, checkpoint: str) -> None:
    writer = numbers().writeStream.format("sparklog").option("path", path).option("topic", "t")
    writer = writer.option("checkpointLocation", checkpoint)
    run_batches(writer, 1)
    shutil.rmtree(checkpoint)
    with pytest.raises(StreamingQueryException, match=r"has the checkpoint location of"):
        run_batches(writer, 1)
    assert values(path, "t") == list(range(100))


@pytest.mark.deep
def test_several_queries_share_a_log_and_a_topic(
    numbers: Numbers, path: str, tmp_path: Path
) -> None:
    queries: list[StreamingQuery] = []
    for n in range(3):
        writer = (
            numbers(rows=50)
            .selectExpr(f"cast(cast(value as long) * 3 + {n} as string) as value")
            .writeStream.option("checkpointLocation", str(tmp_path / f"checkpoint{n}"))
        )
        if n == 2:
            writer = writer.format("sparklog").option("path", path).option("topic", "t")
        else:
            writer = writer.foreachBatch(SegmentSink(path, "t"))
        queries.append(writer.trigger(processingTime="0 seconds").start())
    try:
        for query in queries:
            while query.lastProgress is None or query.lastProgress["batchId"] < 4:
                assert query.isActive, query.exception()
                query.awaitTermination(0.2)
    finally:
        for query in queries:
            query.stop()
    found = values(path, "t")
    assert len(found) == len(set(found))
    for n in range(3):
        mine = [v // 3 for v in found if v % 3 == n]
        assert mine == list(range(len(mine))) and len(mine) >= 250
    with sparklog.open(path) as log:
        rows = [r for r in log.commits().to_pylist() if r["writer"] is not None]
    spans = sorted((r["first"], r["end"]) for r in rows)
    assert all(end == first for (_, end), (first, _) in pairwise(spans))
    assert all(end - first == 50 for first, end in spans)  # nothing interleaves


def test_log_to_log_keeps_every_column(
    spark: SparkSession, path: str, checkpoint: str, tmp_path: Path
) -> None:
    df = spark.range(0, 500).selectExpr(
        "cast(id as string) key",
        "cast(id as string) value",
        "array(struct('n' as key, cast(cast(id as string) as binary) as value)) headers",
        "timestamp_millis(1700000000000 + id) as timestamp",
    )
    df.write.format("sparklog").mode("append").option("topic", "a").option("partitions", 2).save(
        path
    )
    query = (
        spark.readStream.format("sparklog")
        .options(path=path, subscribe="a", startingOffsets="earliest", includeHeaders="true")
        .load()
        .writeStream.format("sparklog")
        .options(path=str(tmp_path / "other"), topic="b", partitions="2")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(240)
    with sparklog.open(path) as first, sparklog.open(tmp_path / "other") as second:
        names = ["key", "value", "partition", "offset", "timestamp", "headers"]
        order = [("partition", "ascending"), ("offset", "ascending")]
        assert (
            first.read("a", columns=names).read_all().sort_by(order).to_pylist()
            == second.read("b", columns=names).read_all().sort_by(order).to_pylist()
        )
