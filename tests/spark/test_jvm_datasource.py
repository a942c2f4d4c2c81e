"""format("sparklog") in the JVM: who moves the bytes, and that nothing else depends on it."""

import contextlib
import json
import os
import re
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceReader, DataSourceWriter, InputPartition
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.types import StructType

import sparklog
from sparklog import Log
from sparklog.datasource import SparklogDataSource
from sparklog.jvm.plans import PLAN_VERSION
from sparklog.sink.task import TaskPlan
from sparklog.sink.writers import BatchWriter
from sparklog.source.batch import BatchReader
from sparklog.source.options import parse
from sparklog.spark_versions import PYSPARK
from tests.spark.jvm_log import JvmLog
from tests.waiting import until

pytestmark = pytest.mark.spark

CONF = "spark.datasource.sparklog.jvm"
BEHIND = {"minOffsetsBehindLatest", "maxOffsetsBehindLatest", "avgOffsetsBehindLatest"}


@pytest.fixture
def log(path: str) -> Iterator[Log]:
    """Topic t: offsets [0, 30) in partition 0 and [0, 20) in partition 1."""
    with sparklog.open(path, "rw") as log:
        log.create_topic("t", 2)
        append(log, 0, 30)
        append(log, 1, 20)
        yield log


def append(log: Log, partition: int, count: int) -> None:
    texts = [str(n) for n in range(count)]
    log.append("t", pa.table({"key": texts, "value": texts}), partition=partition)


@pytest.fixture
def said(spark: SparkSession) -> Iterator[JvmLog]:
    with JvmLog(spark).listening() as found:
        yield found


@pytest.fixture
def read(spark: SparkSession, log: Log, path: str) -> Callable[..., DataFrame]:
    def load(**options: str) -> DataFrame:
        return spark.read.format("sparklog").options(path=path, subscribe="t", **options).load()

    return load


@pytest.fixture
def stream(spark: SparkSession, log: Log, path: str) -> Callable[..., DataFrame]:
    def load(**options: str) -> DataFrame:
        given = {"path": path, "subscribe": "t", "startingOffsets": "earliest", **options}
        return spark.readStream.format("sparklog").options(**given).load()

    return load


def run(df: DataFrame, checkpoint: str, to: str | None = None, **options: str) -> StreamingQuery:
    """All that there is, into a topic of the log `to`."""
    writer = df.writeStream.format("noop" if to is None else "sparklog")
    if to is not None:
        writer = writer.options(**{"path": to, "topic": "o", "partitions": "2", **options})
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    assert query.awaitTermination(240)
    return query


def values(path: str) -> list[str]:
    with sparklog.open(path) as log:
        table = log.read("o", columns=["value"]).read_all()
    return sorted(bytes(value).decode() for value in table["value"].to_pylist())


ALL = sorted([*map(str, range(30)), *map(str, range(20))])


@pytest.mark.deep
def test_columns_that_are_not_wanted_are_left_out(read: Callable[..., DataFrame]) -> None:
    df = read()
    assert df.count() == 50
    some = df.select("value", "offset").where("value = '7'")
    assert sorted(map(tuple, some.collect())) == [(b"7", 7), (b"7", 7)]
    plan = some._jdf.queryExecution().executedPlan().toString()
    (scan,) = [line for line in plan.splitlines() if "BatchScan" in line]
    assert re.findall(r"(\w+)#", scan) == ["value", "offset"]
    assert df.select("timestampType").distinct().collect()[0][0] == 0
    assert df.groupBy("partition").count().count() == 2


def test_who_reads_is_said_once_a_read(read: Callable[..., DataFrame], said: JvmLog) -> None:
    df = read()
    df.select("key").collect()
    assert [re.sub(r"of \S+", "of LOG", line) for line in said.lines()] == [
        "INFO a batch: reads t of LOG in the JVM"
    ]


@pytest.mark.parametrize("way", ["option", "conf", "both"])
def test_python_on_demand(
    way: str, spark: SparkSession, read: Callable[..., DataFrame], said: JvmLog
) -> None:
    if way == "option":
        df = read(JVM="FALSE")
    else:  # Spark makes an option of it
        spark.conf.set(CONF, "false")
        try:
            df = read(jvm="true") if way == "both" else read()
        finally:
            spark.conf.unset(CONF)
    assert df.where("offset > 15").count() == 18
    (line,) = said.lines()
    if way == "both":
        assert line.endswith(" in the JVM")
    else:
        assert line.endswith(" in Python: option jvm is false")


@pytest.mark.deep
def test_a_wrong_option_is_told_as_ever(read: Callable[..., DataFrame]) -> None:
    for given in ({"jvm": "maybe"}, {"nonsense": "1"}):
        with pytest.raises(PySparkException) as jvm:
            read(**given).count()
        with pytest.raises(PySparkException) as python:
            read(**{"jvm": "false", **given}).count()
        (name,) = given
        assert name in str(jvm.value)
        assert "sparklog.jvm" not in str(jvm.value)
        if name != "jvm":
            assert re.findall("InvalidRequestError: .*", str(jvm.value)) == re.findall(
                "InvalidRequestError: .*", str(python.value)
            )


@pytest.mark.deep
def test_options_of_its_own_are_refused_and_never_shown(
    read: Callable[..., DataFrame], stream: Callable[..., DataFrame], path: str, checkpoint: str
) -> None:
    for name in ("sparklog.jvm.plan", "Sparklog.JVM.Query"):
        with pytest.raises(PySparkException, match="is for sparklog's own use: leave it out"):
            read(**{name: "1"}).count()
        with pytest.raises(PySparkException, match="is for sparklog's own use: leave it out"):
            df = read().select("value")
            df.write.format("sparklog").mode("append").options(**{"topic": "o", name: "1"}).save(
                path
            )
    query = run(stream(), checkpoint, path + "2")
    for df in (read(), stream()):
        assert "sparklog.jvm" not in df._jdf.queryExecution().toString()
    assert "sparklog.jvm" not in str(query.lastProgress)


def test_pushed_filters_are_their_own_scan_s(read: Callable[..., DataFrame]) -> None:
    df = read(pushdown="true")
    few = df.where("offset >= 25")
    for _ in range(2):
        assert few.select("value").count() == 5
        assert df.count() == 50
    assert few.union(df).count() == 55
    assert sorted(row[0] for row in few.select("value").collect()) == [
        str(n).encode() for n in range(25, 30)
    ]


def test_a_dataframe_reads_what_was_planned_first(
    log: Log, read: Callable[..., DataFrame], spark: SparkSession
) -> None:
    """As Spark has it for a Python source: whichever columns, whoever reads them."""
    counts = {}
    for jvm in ("true", "false"):
        df = read(jvm=jvm)
        before = df.count()
        append(log, 0, 10)
        counts[jvm] = (before, df.select("key").count(), df.where("value is not null").count())
    # A filter is planned anew if the session lets Python see it.
    added = 10 if PYSPARK >= (4, 1) else 0
    assert counts == {"true": (50, 50, 50 + added), "false": (60, 60, 60 + added)}
    df = read()
    assert df.select("key").union(df.select("value")).count() == 2 * 70


def test_nothing_to_read(spark: SparkSession, log: Log, path: str, said: JvmLog) -> None:
    log.create_topic("empty")
    df = spark.read.format("sparklog").options(path=path, subscribe="empty").load()
    assert df.count() == 0
    assert df.collect() == []
    assert said.lines() == []


def test_other_sessions(spark: SparkSession, log: Log, path: str, said: JvmLog) -> None:
    """A view is a session's own; the source is all sessions'."""
    for session in (spark.newSession(), spark.newSession()):
        given = f"OPTIONS (path '{path}', subscribe 't')"
        session.sql(f"CREATE TEMPORARY VIEW seen USING sparklog {given}")
        assert session.sql("SELECT count(*), max(offset) FROM seen").first() == (50, 29)
    assert [line.endswith(" in the JVM") for line in said.lines()] == [True, True]


def test_another_session_is_active_when_a_scan_is_executed(
    spark: SparkSession, log: Log, path: str
) -> None:
    """Spark executes `rdd` in the active session, which may have other Python sources."""
    own = spark.newSession()
    sparklog.register(own)
    df = own.read.format("sparklog").options(path=path, subscribe="t").load()
    try:
        spark.newSession().createDataFrame([(1,)], "n int").count()
        assert df.rdd.getNumPartitions() == 2
    finally:
        spark.createDataFrame([], "n int")  # makes the session active again


@pytest.mark.deep
def test_progress_tells_how_far_behind_and_who(
    stream: Callable[..., DataFrame], checkpoint: str, path: str, said: JvmLog
) -> None:
    query = run(stream(maxOffsetsPerTrigger="20"), checkpoint, path + "2")
    metrics = [progress["sources"][0]["metrics"] for progress in query.recentProgress]
    assert [each["maxOffsetsBehindLatest"] for each in metrics] == ["18", "6", "0"]
    assert [each["minOffsetsBehindLatest"] for each in metrics] == ["12", "4", "0"]
    assert [each["avgOffsetsBehindLatest"] for each in metrics] == ["15.0", "5.0", "0.0"]
    assert {each["reader"] for each in metrics} == {"jvm"}
    assert query.lastProgress["sources"][0]["description"] == f"sparklog[t of {path}]"
    assert query.lastProgress["sink"]["metrics"] == {"writer": "jvm"}
    assert query.lastProgress["sink"]["numOutputRows"] == 10
    assert sorted(said.lines()) == [
        f"INFO {query.runId}: reads t of {path} in the JVM",
        f"INFO {query.runId}: writes o of {path}2 in the JVM",
    ]
    assert values(path + "2") == ALL


@pytest.mark.deep
def test_progress_is_the_same_without_the_jvm(
    stream: Callable[..., DataFrame], checkpoint: str, path: str, spark: SparkSession
) -> None:
    """Option jvm is false: who moves the bytes and why, and how far behind the query is."""
    spark.conf.set(CONF, "false")
    try:
        query = run(stream(maxOffsetsPerTrigger="20"), checkpoint, path + "2")
    finally:
        spark.conf.unset(CONF)
    metrics = [progress["sources"][0]["metrics"] for progress in query.recentProgress]
    assert [each["maxOffsetsBehindLatest"] for each in metrics] == ["18", "6", "0"]
    who = {"reader": "python", "readerReason": "option jvm is false"}
    assert all(who.items() <= each.items() for each in metrics)
    assert query.lastProgress["sink"]["metrics"] == {
        "writer": "python", "writerReason": "option jvm is false"
    }  # fmt: skip
    assert values(path + "2") == ALL


@pytest.mark.deep
def test_python_says_so_in_progress(
    stream: Callable[..., DataFrame], checkpoint: str, tmp_path: Path, said: JvmLog
) -> None:
    """A log in a store is written by Python; the source doesn't depend on that."""
    query = run(stream(), checkpoint, f"file://{tmp_path}/store")
    assert query.lastProgress["sink"]["metrics"] == {
        "writer": "python", "writerReason": "the log is in a store"
    }  # fmt: skip
    assert values(f"file://{tmp_path}/store") == ALL
    assert any(line.endswith(" in Python: the log is in a store") for line in said.lines())


@pytest.mark.parametrize("first", ["true", pytest.param("false", marks=pytest.mark.deep)])
@pytest.mark.deep
def test_a_checkpoint_goes_on_in_the_other_one(
    first: str, log: Log, stream: Callable[..., DataFrame], checkpoint: str, path: str
) -> None:
    """Source and sink, three times to and fro; the same query to the log."""
    to, other = path + "2", "false" if first == "true" else "true"
    groups = set()
    for n, jvm in enumerate([first, other, first]):
        query = run(stream(jvm=jvm), checkpoint, to, jvm=jvm, queryName=f"turn\n{n}")
        assert query.lastProgress["sources"][0]["metrics"].keys() == (
            BEHIND | ({"reader"} if jvm == "true" else {"reader", "readerReason"})
        )
        assert len(values(to)) == 50 + 10 * n
        groups.update(log.readers()["group"].to_pylist())
        assert log.readers()["lag"].to_pylist() == [0, 0]
        assert log.readers()["query"].to_pylist() == [f"turn\n{n}"] * 2
        append(log, n % 2, 10)
    assert groups == {query.id}
    with sparklog.open(to) as written:
        batches = [row for row in written.commits().to_pylist() if row["writer"] == query.id]
    assert sorted({row["batch"] for row in batches}) == [0, 1, 2]


@pytest.mark.deep
def test_a_replay_by_the_other_one_is_dropped(
    stream: Callable[..., DataFrame], checkpoint: str, path: str
) -> None:
    to = path + "2"
    for jvm in ("true", "false", "true"):
        run(stream(jvm=jvm), checkpoint, to, jvm=jvm)
        for name in ("0", ".0.crc"):
            (Path(checkpoint) / "commits" / name).unlink()
        assert values(to) == ALL


@pytest.mark.deep
def test_triggers_change(
    log: Log, stream: Callable[..., DataFrame], checkpoint: str, path: str
) -> None:
    to = path + "2"
    for n, trigger in enumerate(
        [{"once": True}, {"availableNow": True}, {"processingTime": "0 seconds"}]
    ):
        writer = stream().writeStream.format("sparklog").options(path=to, topic="o")
        writer = writer.option("partitions", "2").option("checkpointLocation", checkpoint)
        query = writer.trigger(**trigger).start()  # type: ignore[arg-type]
        if "processingTime" in trigger:
            query.processAllAvailable()
            query.stop()
        assert query.awaitTermination(240)
        assert len(values(to)) == 50 + 10 * n
        append(log, 0, 10)


@pytest.mark.deep
def test_sources_of_one_query(
    log: Log, stream: Callable[..., DataFrame], checkpoint: str, path: str
) -> None:
    """Two of other topics, and one twice: all rows come, each with its own progress."""
    log.create_topic("u")
    log.append("u", pa.table({"value": ["u"] * 5}))
    same = stream()
    both = same.select("value").union(stream(subscribe="u").select("value"))
    query = run(both.union(same.select("key")), checkpoint, path + "2")
    assert sorted(values(path + "2")) == sorted([*ALL, *ALL, *["u"] * 5])
    rows = [source["numInputRows"] for source in query.lastProgress["sources"]]
    assert sorted(rows) in ([5, 50, 50], [5, 100])
    assert {s["metrics"]["reader"].split(",")[0] for s in query.lastProgress["sources"]} <= {
        "jvm", "python"
    }  # fmt: skip


def test_bad_rows_are_the_same_error(
    spark: SparkSession, path: str, checkpoint: str, log: Log
) -> None:
    df = spark.range(0, 100, 1, 2).selectExpr(
        "cast(id as string) value", "if(id = 77, 9, 0) as partition"
    )
    texts = []
    for jvm in ("true", "false"):
        with pytest.raises(PySparkException) as told:
            df.write.format("sparklog").mode("append").options(topic="t", jvm=jvm).save(path)
        texts.append(re.findall("InvalidRequestError: (.*)", str(told.value))[0].strip())
    assert texts[0] == texts[1]
    assert "no partition 9" in texts[0]
    assert log.offsets("t") == {0: (0, 30), 1: (0, 20)}
    assert not [n for n in Path(path).iterdir() if n.name.startswith("sparklog-chunk-")]


def test_task_failures_leave_what_the_winner_wrote(
    spark: SparkSession, path: str, said: JvmLog
) -> None:
    """Spark's local mode tries once; a batch that fails midway is aborted by Python.

    Spark doesn't wait for its other tasks before it aborts, so the one that fails works longest.
    """
    df = spark.range(0, 200_000, 1, 2).selectExpr(
        "repeat(cast(id as string), if(id < 100000, 10, 50)) value",
        "if(id = 199999, raise_error('dead'), 'k') as key",
    )
    writer = df.write.format("sparklog").mode("append").options(topic="o", partitions="2")
    with pytest.raises(PySparkException, match="dead"):
        writer.save(path)
    assert not [n for n in Path(path).iterdir() if n.name.startswith("sparklog-chunk-")]
    df.drop("key").write.format("sparklog").mode("append").options(topic="o").save(path)
    assert len(values(path)) == 200_000
    assert [line.endswith(" in the JVM") for line in said.lines()] == [True, True]


NEWER = json.dumps({"version": PLAN_VERSION + 1}).encode()


class NewerReader(BatchReader):
    """Its plans are newer than the jar's."""

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition((NEWER, found.value[1])) for found in super().partitions()]


class NewerWriter(BatchWriter):
    """The same."""

    def _plan_for_jvm(self, plan: TaskPlan) -> bytes:
        super()._plan_for_jvm(plan)
        return NEWER


class NewerPackage(SparklogDataSource):
    """The Python package of another version than the jar."""

    def reader(self, schema: StructType) -> DataSourceReader:
        return NewerReader(parse(dict(self.options), streaming=False), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        made = super().writer(schema, overwrite)
        made.__class__ = NewerWriter
        return made


@pytest.mark.deep
def test_plans_of_another_version_are_pythons(
    spark: SparkSession, log: Log, path: str, said: JvmLog
) -> None:
    session = spark.newSession()
    session.dataSource.register(NewerPackage)
    df = session.read.format("sparklog").options(path=path, subscribe="t").load()
    assert df.where("offset > 15").count() == 18
    df.write.format("sparklog").mode("append").options(topic="o", partitions="2").save(path)
    assert values(path) == ALL
    reading, writing = {line.split(" of ")[0]: line for line in said.lines()}.values()
    for line in (reading, writing):
        assert line.startswith("WARN ")
        assert f"makes plans of version {PLAN_VERSION + 1}, and the jar" in line
        assert "use the jar that `sparklog doctor --spark-conf` names" in line


@pytest.mark.deep
def test_the_planners_process_dies(
    log: Log, stream: Callable[..., DataFrame], checkpoint: str, path: str
) -> None:
    """The query fails, as it does without the JVM; started again it goes on."""
    to, others = path + "2", set(planners())  # of queries that have ended, or that Spark rejected
    writer = stream().writeStream.format("sparklog").options(path=to, topic="o", partitions="2")
    writer = writer.option("checkpointLocation", checkpoint)
    query = writer.trigger(processingTime="0 seconds").start()
    query.processAllAvailable()
    (planner,) = until(lambda: set(planners()) - others, state=planners)
    os.kill(planner, signal.SIGKILL)
    with pytest.raises(StreamingQueryException):
        query.awaitTermination(240)
    append(log, 0, 10)
    run(stream(), checkpoint, to)
    assert len(values(to)) == 60


def planners() -> list[int]:
    """Processes of this test's driver that plan streams."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if (
                entry.name.isdigit()
                and b"python_streaming_source_runner" in (entry / "cmdline").read_bytes()
            ):
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
                grandparent = Path(f"/proc/{parent}/stat").read_text().rsplit(")", 1)[1].split()
                if os.getpid() in (parent, int(grandparent[1])):
                    found.append(int(entry.name))
    return found
