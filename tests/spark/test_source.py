"""The source, batch and streaming, against logs that plain Python wrote."""

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import sparklog
from sparklog import Log
from tests.spark.versions import PUSHDOWN, end_offset
from tests.waiting import until

pytestmark = pytest.mark.spark

T0 = 1_700_000_000_000  # the timestamp of record 0 (ms); record n is n seconds later


def rows(first: int, end: int, partition: int | None = None) -> pa.Table:
    n = range(first, end)
    columns: dict[str, Any] = {
        "key": pa.array([f"k{i}" for i in n]),
        "value": pa.array([str(i) for i in n]),
        "timestamp": pa.array([T0 + 1000 * i for i in n], pa.timestamp("ms", tz="UTC")),
    }
    if partition is not None:
        columns["partition"] = pa.array([partition] * len(n), pa.int32())
    return pa.table(columns)


@pytest.fixture
def log(path: str) -> Iterator[Log]:
    """Topic t: partition 0 has offsets [0, 100) in ten commits, partition 1 [0, 50)."""
    with sparklog.open(path, "rw") as log:
        log.create_topic("t", 2, {"retention.ms": "-1"})
        for first in range(0, 100, 10):
            log.append("t", rows(first, first + 10, 0))
        log.append("t", rows(0, 50, 1))
        yield log


@pytest.fixture
def read(spark: SparkSession, path: str) -> Callable[..., DataFrame]:
    def load(schema: str | None = None, **options: str) -> DataFrame:
        reader = spark.read.format("sparklog").option("path", path)
        if not {"subscribe", "assign", "subscribePattern"} & options.keys():
            reader = reader.option("subscribe", "t")
        for key, value in options.items():
            reader = reader.option(key, value)
        return (reader.schema(schema) if schema else reader).load()

    return load


def spans(df: DataFrame) -> dict[int, tuple[int, int]]:
    """{partition: (first offset, end)} of dense rows; checks that they are dense and whole."""
    found: dict[int, list[int]] = {}
    for row in df.select("partition", "offset", "value").collect():
        assert row.value.decode() == str(row.offset)
        found.setdefault(row.partition, []).append(row.offset)
    for offsets in found.values():
        assert sorted(offsets) == list(range(min(offsets), max(offsets) + 1))
    return {p: (min(offsets), max(offsets) + 1) for p, offsets in found.items()}


def test_columns_are_those_of_the_kafka_source(log: Log, read: Callable[..., DataFrame]) -> None:
    df = read(includeHeaders="true")
    assert df.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    assert "headers" not in read().columns
    row = df.where("partition = 1 and offset = 7").collect()[0]
    assert (bytes(row.key), bytes(row.value), row.topic, row.timestampType) == (b"k7", b"7", "t", 0)
    assert row.timestamp.timestamp() * 1000 == T0 + 7000
    assert row.headers == []


BATCHES: list[tuple[dict[str, str], dict[int, tuple[int, int]]]] = [
    ({}, {0: (0, 100), 1: (0, 50)}),
    ({"assign": '{"t":[1]}'}, {1: (0, 50)}),
    ({"subscribePattern": "[a-t]"}, {0: (0, 100), 1: (0, 50)}),
    ({"startingOffsets": '{"t":{"0":95,"1":-2}}'}, {0: (95, 100), 1: (0, 50)}),
    ({"endingOffsets": '{"t":{"0":5,"1":-1}}'}, {0: (0, 5), 1: (0, 50)}),
    ({"startingTimestamp": str(T0 + 44_500)}, {0: (45, 100), 1: (45, 50)}),
    (
        {"startingOffsetsByTimestamp": f'{{"t":{{"0":{T0 + 99_000},"1":{T0}}}}}'},
        {0: (99, 100), 1: (0, 50)},
    ),
    ({"endingTimestamp": str(T0 + 60_000)}, {0: (0, 60), 1: (0, 50)}),
    (
        {"endingOffsetsByTimestamp": f'{{"t":{{"0":{T0 + 60_000},"1":{T0 + 9_500}}}}}'},
        {0: (0, 60), 1: (0, 10)},
    ),
    (
        {"startingTimestamp": str(T0 + 70_000), "startingOffsetsByTimestampStrategy": "latest"},
        {0: (70, 100)},
    ),
    ({"minPartitions": "7"}, {0: (0, 100), 1: (0, 50)}),
    ({"maxRecordsPerPartition": "30"}, {0: (0, 100), 1: (0, 50)}),
    ({"maxBytesPerPartition": "1000"}, {0: (0, 100), 1: (0, 50)}),
    ({"kafka.isolation.level": "read_committed"}, {0: (0, 100), 1: (0, 50)}),
]


@pytest.mark.parametrize(("options", "expected"), BATCHES)
def test_batch_reads_exactly_what_the_options_name(
    log: Log,
    read: Callable[..., DataFrame],
    options: dict[str, str],
    expected: dict[int, tuple[int, int]],
) -> None:
    assert spans(read(**options)) == expected


def test_partitions_are_split_over_tasks(log: Log, read: Callable[..., DataFrame]) -> None:
    assert read().rdd.getNumPartitions() == 2
    assert read(minPartitions="6").rdd.getNumPartitions() == 6
    assert read(maxRecordsPerPartition="30").rdd.getNumPartitions() == 4 + 2
    assert read(maxBytesPerPartition="500").rdd.getNumPartitions() > 3


@pytest.mark.one_path
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"subscribe": "nope"}, r"nope not in .*topics are t\. Check the name.*start the writer"),
        ({"startingTimestamp": str(T0 + 10**9)}, "no record of t-0, t-1 is at or after"),
        ({"startingOffsets": '{"t":{"0":1}}'}, "lacks t-1"),
        ({"kafka.bootstrap.servers": "localhost:9092"}, "use option path instead"),
        ({"startingOffsets": "latest"}, "can't be latest"),
    ],
)
def test_batch_errors_reach_the_user(
    log: Log, read: Callable[..., DataFrame], options: dict[str, str], words: str
) -> None:
    with pytest.raises(PySparkException, match=words):
        read(**options).count()


@pytest.mark.deep
def test_a_query_waits_for_its_topic(spark: SparkSession, path: str, checkpoint: str) -> None:
    """Started without a log, again without the topic, and again while it runs."""
    to, given = path + "2", {"subscribe": "t", "startingOffsets": "earliest"}
    reader = spark.readStream.format("sparklog").options(path=path, waitForTopics="true", **given)
    df = reader.load().select("value")
    writer = df.writeStream.format("sparklog").options(path=to, topic="o")
    writer = writer.option("checkpointLocation", checkpoint)

    def run() -> None:
        assert writer.trigger(availableNow=True).start().awaitTermination(240)

    def copied() -> int:
        with sparklog.open(to) as log:
            return log.read("o").read_all().num_rows

    run()
    with sparklog.open(path, "rw") as log:
        log.create_topic("another")
        run()
        assert copied() == 0
        query = writer.trigger(processingTime="0 seconds").start()
        log.create_topic("t", 2)
        log.append("t", rows(0, 10, 1))
        until(lambda: query.exception() or copied() == 10)
        query.stop()
        log.append("t", rows(0, 5, 0))
        run()
    assert copied() == 15


@pytest.mark.deep
def test_user_schema_leaves_columns_out(log: Log, read: Callable[..., DataFrame]) -> None:
    df = read("offset bigint, key binary")
    assert df.columns == ["offset", "key"]
    assert df.where("offset = 3").distinct().count() == 1
    with pytest.raises(PySparkException, match="no column nope; choose from key, value"):
        read("nope int").count()
    with pytest.raises(PySparkException, match="column value is binary, not string"):
        read("value string").count()


FILTERS = [
    ("offset >= 90", 10),
    ("offset < 3", 6),
    ("offset = 7", 2),
    ("offset > 97 and offset <= 98", 1),
    ("partition = 1", 50),
    ("partition in (0, 5)", 100),
    ("topic = 't'", 150),
    ("topic = 'u'", 0),
    ("timestamp >= timestamp'2023-11-14 22:14:50'", 10),
    ("timestamp < timestamp'2023-11-14 22:13:25'", 10),
    ("timestamp > timestamp'2023-11-14 22:14:09' and partition = 1", 0),
    ("value = '7'", 2),
    ("offset % 2 = 0", 75),
]


@pytest.mark.parametrize(
    ("condition", "count"),
    [pytest.param(*f, marks=pytest.mark.deep if n % 4 else ()) for n, f in enumerate(FILTERS)],
)
def test_pushed_filters_change_nothing_but_the_work(
    log: Log, read: Callable[..., DataFrame], condition: str, count: int
) -> None:
    assert read().where(condition).count() == count
    assert read(pushdown="true").where(condition).count() == count


@PUSHDOWN
def test_pushed_filters_narrow_the_plan(log: Log, read: Callable[..., DataFrame]) -> None:
    assert read(pushdown="true").where("partition = 1 and offset < 5").rdd.getNumPartitions() == 1


# --- streaming ---------------------------------------------------------------------------------


@pytest.fixture
def tail(
    spark: SparkSession, path: str, checkpoint: str
) -> Callable[..., tuple[StreamingQuery, list[list[tuple[str, int, int]]]]]:
    """Run the source up to now: the query, and (topic, partition, offset) of each micro-batch."""

    def run(**options: str) -> tuple[StreamingQuery, list[list[tuple[str, int, int]]]]:
        batches: list[list[tuple[str, int, int]]] = []

        def keep(df: DataFrame, _: int) -> None:
            batches.append(
                sorted((r.topic, r.partition, r.offset) for r in df.drop("value").collect())
            )

        reader = spark.readStream.format("sparklog").option("path", path)
        if not {"subscribe", "assign", "subscribePattern"} & options.keys():
            reader = reader.option("subscribe", "t")
        for key, value in ({"startingOffsets": "earliest"} | options).items():
            reader = reader.option(key, value)
        query = (
            reader.load()
            .writeStream.option("checkpointLocation", checkpoint)
            .foreachBatch(keep)
            .trigger(availableNow=True)
            .queryName("tail")
            .start()
        )
        assert query.awaitTermination(240)
        return query, batches

    return run


def flat(batches: list[list[tuple[str, int, int]]]) -> list[tuple[str, int, int]]:
    return sorted(row for batch in batches for row in batch)


def test_available_now_reads_all_in_limited_batches_and_resumes(
    log: Log, tail: Callable[..., Any], checkpoint: str
) -> None:
    query, batches = tail(maxOffsetsPerTrigger="60")
    assert [len(b) for b in batches] == [60, 60, 30]
    assert flat(batches) == [("t", 0, n) for n in range(100)] + [("t", 1, n) for n in range(50)]
    assert end_offset(query) == {"t": {"0": 100, "1": 50}}
    log.append("t", rows(100, 105, 0))
    _, batches = tail(maxOffsetsPerTrigger="60")
    assert flat(batches) == [("t", 0, n) for n in range(100, 105)]


@pytest.mark.deep
def test_a_query_registers_how_far_it_is_by_itself(
    log: Log, tail: Callable[..., Any], spark: SparkSession
) -> None:
    log.alter_topic("t", config={"retention.respect.readers": "true"})
    query, batches = tail(maxOffsetsPerTrigger="60")
    assert [len(b) for b in batches] == [60, 60, 30]
    found = log.readers()
    assert set(found["group"].to_pylist()) == {query.id}
    assert set(found["kind"].to_pylist()) == {"query"}
    assert set(found["query"].to_pylist()) == {"tail"}
    assert set(found["app"].to_pylist()) == {spark.sparkContext.applicationId}
    assert found["lag"].to_pylist() == [0, 0]  # the last micro-batch counts: it is committed
    log.append("t", rows(100, 105, 0))
    assert tail(maxOffsetsPerTrigger="60")[0].id == query.id
    assert log.readers()["offset"].to_pylist() == [105, 50]


@pytest.mark.deep
def test_all_sources_of_a_query_register(
    log: Log, spark: SparkSession, path: str, checkpoint: str
) -> None:
    log.create_topic("u")
    log.append("u", rows(0, 10))

    def load(topic: str) -> DataFrame:
        reader = spark.readStream.format("sparklog").option("path", path)
        return reader.options(
            **{"subscribe": topic, "startingOffsets": "earliest", "kafka.group.id": "both"}
        ).load()

    both = load("t").union(load("u")).union(load("u"))
    writer = both.writeStream.format("noop").option("checkpointLocation", checkpoint)
    assert writer.trigger(availableNow=True).start().awaitTermination(240)
    found = log.readers().select(["group", "topic", "partition", "offset"]).to_pylist()
    # Two sources read u, and only tasks of one micro-batch know which is further behind.
    assert [tuple(row.values()) for row in found] == [
        ("both", "t", 0, 100), ("both", "t", 1, 50), ("both", "u", 0, 0)
    ]  # fmt: skip


@pytest.mark.deep
def test_a_stream_of_assigned_partitions_split_over_tasks(
    log: Log, tail: Callable[..., Any]
) -> None:
    options = {"assign": '{"t":[0]}', "startingOffsets": '{"t":{"0":95}}'}
    _, batches = tail(maxRecordsPerPartition="2", **options)
    assert flat(batches) == [("t", 0, n) for n in range(95, 100)]
    with pytest.raises(StreamingQueryException, match="endingTimestamp is for batch"):
        tail(endingTimestamp="1", **options)


@pytest.mark.deep
def test_a_trigger_waits_for_enough_or_for_long_enough(
    log: Log, spark: SparkSession, path: str, checkpoint: str
) -> None:
    def start(**options: str) -> tuple[StreamingQuery, list[int]]:
        counts: list[int] = []
        reader = spark.readStream.format("sparklog").options(
            path=path, subscribe="t", startingOffsets="earliest", **options
        )
        writer = reader.load().writeStream.option("checkpointLocation", checkpoint)
        writer = writer.foreachBatch(lambda df, _: counts.append(df.count()))
        return writer.trigger(processingTime="100 milliseconds").start(), counts

    def wait(query: StreamingQuery, counts: list[int], wanted: list[int]) -> None:
        until(lambda: counts == wanted or not query.isActive, state=lambda: counts, pause_s=0.05)
        assert (query.exception(), counts) == (None, wanted)

    query, counts = start(minOffsetsPerTrigger="20", maxTriggerDelay="1h")
    try:
        wait(query, counts, [150])  # the first one never waits
        log.append("t", rows(100, 103, 0))
        time.sleep(3)
        assert counts == [150], "three records alone did not wait"
        log.append("t", rows(103, 125, 0))
        wait(query, counts, [150, 25])
        until(Path(checkpoint, "commits", "1").exists, state=query.exception)  # else it comes again
    finally:
        query.stop()
    query, counts = start(minOffsetsPerTrigger="1000", maxTriggerDelay="1s")
    try:
        for n in range(125, 128):
            log.append("t", rows(n, n + 1, 0))
            wait(query, counts, [1] * (n - 124))
    finally:
        query.stop()


def test_bytes_limit_a_micro_batch(log: Log, tail: Callable[..., Any]) -> None:
    _, batches = tail(maxBytesPerTrigger="2500")
    assert len(batches) > 1
    assert len(flat(batches)) == len(set(flat(batches))) == 150


@pytest.mark.deep
def test_latest_is_the_default_start(log: Log, tail: Callable[..., Any]) -> None:
    assert flat(tail(startingOffsets="latest")[1]) == []
    log.append("t", rows(100, 103, 0))
    assert flat(tail(startingOffsets="latest")[1]) == [("t", 0, n) for n in range(100, 103)]


def test_start_by_timestamp(log: Log, tail: Callable[..., Any]) -> None:
    _, batches = tail(
        startingTimestamp=str(T0 + 95_000), startingOffsetsByTimestampStrategy="latest"
    )
    assert flat(batches) == [("t", 0, n) for n in range(95, 100)]


@pytest.mark.deep
def test_pattern_picks_up_new_topics_and_partitions(log: Log, tail: Callable[..., Any]) -> None:
    tail(subscribePattern="t.*")
    log.create_topic("tt", 1)
    log.append("tt", rows(0, 4))
    log.alter_topic("t", partitions=3)
    log.append("t", rows(0, 2, 2))
    _, batches = tail(subscribePattern="t.*")
    assert flat(batches) == [("t", 2, 0), ("t", 2, 1)] + [("tt", 0, n) for n in range(4)]


@pytest.mark.deep
def test_new_topic_joins_a_query_that_runs(
    log: Log, spark: SparkSession, path: str, checkpoint: str
) -> None:
    query = (
        spark.readStream.format("sparklog")
        .option("path", path)
        .option("subscribePattern", "t.*")
        .option("startingOffsets", "latest")
        .load()
        .writeStream.format("memory")
        .queryName("joined")
        .option("checkpointLocation", checkpoint)
        .start()
    )
    try:
        query.processAllAvailable()
        log.create_topic("tnew", 1)
        log.append("tnew", rows(0, 5))
        query.processAllAvailable()
        found = spark.sql("select topic, count(*) n from joined group by topic").collect()
        assert [(r.topic, r.n) for r in found] == [("tnew", 5)]
    finally:
        query.stop()


@pytest.mark.deep
def test_lost_records_fail_the_query_with_the_exact_range(
    log: Log, tail: Callable[..., Any]
) -> None:
    tail(maxOffsetsPerTrigger="60")
    log.append("t", rows(100, 200, 0))
    log.delete_records("t", {0: 150})
    with pytest.raises(StreamingQueryException, match=r"data loss: offsets \[100, 150\) of t-0"):
        tail()
    _, batches = tail(failOnDataLoss="false")
    assert flat(batches) == [("t", 0, n) for n in range(150, 200)]


@pytest.mark.deep
def test_a_topic_made_again_ends_the_query_or_goes_on_where_it_begins(
    log: Log, tail: Callable[..., Any]
) -> None:
    tail()
    log.append("t", rows(100, 110, 0))
    log.delete_topic("t")
    with pytest.raises(StreamingQueryException, match=r"\[100, 110\) of t-0 .*topic was deleted"):
        tail()
    log.create_topic("t", 2)
    log.append("t", rows(110, 113, 0))
    replaced = "TopicReplacedError: t-0 was deleted and created again: .* offset 100 .* offset 110"
    with pytest.raises(StreamingQueryException, match=replaced):
        tail()
    _, batches = tail(failOnDataLoss="false")
    assert flat(batches) == [("t", 0, n) for n in range(110, 113)]


def test_timestamps_are_utc_instants(log: Log, read: Callable[..., DataFrame]) -> None:
    first = read().where("partition = 0 and offset = 0").selectExpr("cast(timestamp as long) s")
    assert first.collect()[0].s == T0 // 1000
    assert datetime.fromtimestamp(T0 / 1000, UTC).year == 2023
