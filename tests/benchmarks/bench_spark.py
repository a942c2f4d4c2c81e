"""Sink and source in Spark, both cores, beside their ceilings and Spark's Kafka connector.

    python -m tests.benchmarks.bench_spark [--rows N] [--codecs none lz4] [--memory GB]

The ceiling of the sink is the same rows through a mapInArrow that only counts; that of the source
is one prebuilt Arrow batch yielded over and over. The connector has a broker on this machine and
the settings that make it quickest. All run in one session, by turns; medians of `--rounds`.
"""

import argparse
import contextlib
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

import sparklog
from sparklog.sink import SegmentSink, close
from sparklog.source.schema import arrow_schema, full_schema
from tests import jars
from tests.benchmarks.table import Row, print_rows
from tests.kafka.broker import Broker, JarEngine, free_port

KEY_BYTES = 16
CODECS = ("none", "lz4", "zstd")
VALUE_BYTES = (100, 1000)
TASKS = 2
PARTITIONS = 4
FAST_WRITE = {"kafka.batch.size": str(1 << 20), "kafka.linger.ms": "20"}
FAST_READ = {
    "kafka.max.partition.fetch.bytes": str(16 << 20),
    "kafka.fetch.max.bytes": str(64 << 20),
    "kafka.max.poll.records": "20000",
}


def session(connector: list[str]) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = (
        SparkSession.builder.master(f"local[{TASKS}]")
        .appName("bench")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "3g")
        .config("spark.python.unix.domain.socket.enabled", "true")
    )
    if connector:
        builder = builder.config("spark.jars", ",".join(connector))
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def sample_text(size: int) -> bytes:
    """JSON lines with random numbers in them: lz4 makes a quarter of it, as of real events."""
    rng = np.random.default_rng(1)
    lines, made = [], 0
    while made < size:
        number, place, amount = rng.integers(0, 10_000, 3)
        lines.append(
            f'{{"event":"departure","number":{number},"origin":"{_PLACES[place % 7]}",'
            f'"dest":"{_PLACES[number % 7]}","delay":{amount},"carrier":"{_PLACES[amount % 7]}"}}\n'
        )
        made += len(lines[-1])
    return "".join(lines).encode()[:size]


_PLACES = ("EWR", "JFK", "LGA", "ATL", "ORD", "SFO", "MIA")


def rows(spark: SparkSession, count: int, value_bytes: int) -> DataFrame:
    """`count` rows of 16-byte keys, values that compress as JSON does; cheap to make."""
    text = sample_text(1 << 20)
    at = F.pmod(F.xxhash64("id"), F.lit(len(text) - value_bytes)).cast("int") + 1
    return spark.range(0, count, 1, TASKS).select(
        F.lpad(F.col("id").cast("string"), KEY_BYTES, "0").cast("binary").alias("key"),
        F.substring(F.lit(text), at, F.lit(value_bytes)).alias("value"),
    )


def counting(df: DataFrame) -> None:
    """The ceiling of any sink in Python: rows arrive and are counted."""

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        total = sum(batch.num_rows for batch in batches)
        yield pa.RecordBatch.from_pydict({"n": [total]})

    df.mapInArrow(count, "n long").collect()


def prebuilt_format(value_bytes: int, count: int) -> type[DataSource]:
    """A data source whose tasks yield one and the same Arrow batch: the ceiling of any source."""
    size = 20_000

    class Reader(DataSourceReader):
        def partitions(self) -> list[InputPartition]:
            return [InputPartition(n) for n in range(TASKS)]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            schema = arrow_schema(full_schema(headers=False))
            columns = {
                "key": [b"k" * KEY_BYTES] * size,
                "value": [b"v" * value_bytes] * size,
                "topic": ["t"] * size,
                "partition": [0] * size,
                "offset": list(range(size)),
                "timestamp": [0] * size,
                "timestampType": [0] * size,
            }
            batch = pa.RecordBatch.from_pydict(columns, schema=schema)
            for _ in range(count // size // TASKS):
                yield batch

    class Prebuilt(DataSource):
        @classmethod
        def name(cls) -> str:
            return f"prebuilt{value_bytes}"

        def schema(self) -> Any:
            return full_schema(headers=False)

        def reader(self, schema: Any) -> DataSourceReader:
            return Reader()

    return Prebuilt


def drain(df: DataFrame) -> None:
    df.write.format("noop").mode("overwrite").save()


def median_seconds(actions: dict[str, Callable[[], None]], rounds: int) -> dict[str, float]:
    """Median of each, taken by turns after one run that doesn't count."""
    times: dict[str, list[float]] = {name: [] for name in actions}
    for turn in range(rounds + 1):
        for name, action in actions.items():
            begun = time.perf_counter()
            action()
            if turn:
                times[name].append(time.perf_counter() - begun)
    return {name: statistics.median(found) for name, found in times.items()}


class Bench:
    def __init__(self, spark: SparkSession, base: Path, kafka: Broker | None, rounds: int) -> None:
        self.spark, self.base, self.kafka, self.rounds = spark, base, kafka, rounds
        self.log = str(base / "log")
        self._batch = 0

    def sink(self, df: DataFrame, codec: str, topic: str) -> None:
        """One micro-batch of all rows, staged and committed, by a call outside of a query."""
        self._batch += 1
        offsets = self.base / "checkpoint" / "offsets"
        offsets.mkdir(parents=True, exist_ok=True)
        (offsets / str(self._batch)).write_text(f"v1\n{{}}\n{self._batch}")
        options = {"checkpointLocation": str(offsets.parent), "writerId": "bench"}
        sink = SegmentSink(
            self.log, topic, partitions=PARTITIONS, compression_type=codec, **options
        )
        sink(df, self._batch)

    def connector_sink(self, df: DataFrame, codec: str, topic: str) -> None:
        assert self.kafka is not None
        writer = df.write.format("kafka").option("kafka.bootstrap.servers", self.kafka.bootstrap)
        options = {**FAST_WRITE, "kafka.compression.type": codec, "topic": topic}
        writer.options(**options).save()

    def sinks(self, count: int, value_bytes: int, codec: str) -> list[Row]:
        df, topic = rows(self.spark, count, value_bytes), f"s{value_bytes}{codec}"
        actions = {
            "count": lambda: counting(df),
            "sink": lambda: self.sink(df, codec, topic),
        }
        if self.kafka is not None:
            self.kafka.create_topic(topic, PARTITIONS)
            actions["connector"] = lambda: self.connector_sink(df, codec, topic)
        took = median_seconds(actions, self.rounds)
        return self._rows(f"sink {value_bytes} B {codec}", took, count, value_bytes, "sink", 2.0)

    def sources(self, count: int, value_bytes: int, codec: str) -> list[Row]:
        topic = f"r{value_bytes}{codec}"
        df = rows(self.spark, count, value_bytes)
        self.sink(df, codec, topic)
        self.spark.dataSource.register(prebuilt_format(value_bytes, count))
        actions = {
            "count": lambda: drain(self.spark.read.format(f"prebuilt{value_bytes}").load()),
            "source": lambda: drain(
                self.spark.read.format("sparklog")
                .option("path", self.log)
                .option("subscribe", topic)
                .load()
            ),
        }
        if self.kafka is not None:
            self.kafka.create_topic(topic, PARTITIONS)
            self.connector_sink(df, codec, topic)
            bootstrap = self.kafka.bootstrap
            actions["connector"] = lambda: drain(
                self.spark.read.format("kafka")
                .option("kafka.bootstrap.servers", bootstrap)
                .option("subscribe", topic)
                .options(**FAST_READ)
                .load()
            )
        took = median_seconds(actions, self.rounds)
        return self._rows(
            f"source {value_bytes} B {codec}", took, count, value_bytes, "source", 1.8
        )

    @staticmethod
    def _rows(
        name: str, took: dict[str, float], count: int, value_bytes: int, mine: str, times: float
    ) -> list[Row]:
        size = count * (KEY_BYTES + value_bytes)
        figure = f"{count / took[mine] / 1e6:.2f} M rows/s, {size / took[mine] / 1e6:.0f} MB/s"
        ceiling = f"ceiling {count / took['count'] / 1e6:.2f} M rows/s"
        found = [Row(name, figure, took["count"] / took[mine], ceiling, "0.80")]
        if "connector" in took:
            beside = f"connector {count / took['connector'] / 1e6:.2f} M rows/s"
            found.append(Row(name, figure, took["connector"] / took[mine], beside, f"{times}"))
        return found

    # --- latency -------------------------------------------------------------------------------

    def latency(self) -> list[Row]:
        """Median trigger of a 1,000-row micro-batch, from the rate source and from the log."""
        rate = (
            self.spark.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", 1000)
            .option("numPartitions", TASKS)
            .load()
            .selectExpr("cast(value as string) as value")
        )
        sink = SegmentSink(self.log, "latency", partitions=1)
        mine = self._trigger(rate.writeStream.foreachBatch(sink))
        own = SegmentSink(self.log, "latency2", partitions=1)
        logged = (
            self.spark.readStream.format("sparklog")
            .option("path", self.log)
            .option("subscribe", "latency")
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", 1000)
            .load()
            .select("value")
        )
        both = self._trigger(logged.writeStream.foreachBatch(own))
        theirs: dict[str, float] = {}
        if self.kafka is not None:
            theirs = self._connector_latency(rate)
        return [
            self._latency_row("1,000 rows, sink", mine, theirs.get("sink")),
            self._latency_row("1,000 rows, source and sink", both, theirs.get("both")),
        ]

    def _connector_latency(self, rate: DataFrame) -> dict[str, float]:
        assert self.kafka is not None
        servers = {"kafka.bootstrap.servers": self.kafka.bootstrap}
        for topic in ("latency", "latency2"):
            self.kafka.create_topic(topic, 1)
        writer = rate.writeStream.format("kafka").options(**servers).option("topic", "latency")
        sink = self._trigger(writer)
        logged = (
            self.spark.readStream.format("kafka")
            .options(**servers, subscribe="latency", startingOffsets="earliest")
            .option("maxOffsetsPerTrigger", 1000)
            .load()
            .select("value")
        )
        writer = logged.writeStream.format("kafka").options(**servers).option("topic", "latency2")
        return {"sink": sink, "both": self._trigger(writer)}

    def _trigger(self, writer: Any, *, warm: int = 15, counted: int = 30) -> float:
        checkpoint = tempfile.mkdtemp(dir=self.base)
        query = (
            writer.option("checkpointLocation", checkpoint)
            .trigger(processingTime="0 seconds")
            .start()
        )
        found: dict[int, float] = {}
        while query.isActive and len(found) < warm + counted:
            for progress in query.recentProgress:
                if progress["numInputRows"]:
                    found[progress["batchId"]] = progress["durationMs"]["triggerExecution"]
            time.sleep(0.1)
        query.stop()
        return statistics.median(sorted(found.items())[n][1] for n in range(warm, len(found)))

    @staticmethod
    def _latency_row(name: str, mine: float, theirs: float | None) -> Row:
        if theirs is None:
            return Row(name, f"{mine:.0f} ms")
        return Row(name, f"{mine:.0f} ms", mine / theirs, f"connector {theirs:.0f} ms", "<= 1")

    # --- memory --------------------------------------------------------------------------------

    def memory(self, gigabytes: float) -> list[Row]:
        """Peak resident memory of Python while a topic of that size is written and read."""
        count = int(gigabytes * 1e9 / (KEY_BYTES + 1000))
        df = rows(self.spark, count, 1000)
        peaks = {}
        with watched() as peak:
            self.sink(df, "none", "memory")
        peaks["sink"] = peak[0]
        with watched() as peak:
            drain(
                self.spark.read.format("sparklog")
                .option("path", self.log)
                .option("subscribe", "memory")
                .load()
            )
        peaks["source"] = peak[0]
        return [
            Row(f"{name}, {gigabytes} GB", f"{size / 1e6:.0f} MB", None, "peak RSS", "500 MB")
            for name, size in peaks.items()
        ]


@contextlib.contextmanager
def watched() -> Iterator[list[int]]:
    """Sample the resident memory of this process and all Python ones below it."""
    import threading

    import psutil

    peak, done = [0], threading.Event()

    def sample() -> None:
        me = psutil.Process()
        while not done.wait(0.1):
            for process in [me, *me.children(recursive=True)]:
                with contextlib.suppress(psutil.Error):
                    if "python" in process.name():
                        peak[0] = max(peak[0], process.memory_info().rss)

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()


class FastEngine(JarEngine):
    """The broker with all of HotSpot and a heap of 1 GB; the tests' own starts quickly instead."""

    def _command(self, main: str, *arguments: str) -> list[str]:
        command = super()._command(main, *arguments)
        slow = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m")
        kept = [part for part in command if part not in slow]
        return [kept[0], "-Xmx1g", *kept[1:]]


@contextlib.contextmanager
def connector(base: Path) -> Iterator[tuple[list[str], Broker | None]]:
    """The connector's jars and a broker, or nothing, with the reason printed."""
    try:
        found = jars.connector_jars()
        home = base / "kafka"
        (home / "logs").mkdir(parents=True)
        port = free_port()
        running = Broker(home / "logs", port, FastEngine(home, home / "logs", port))
    except jars.Unavailable as reason:
        print(f"without Spark's Kafka connector: {reason}")
        yield [], None
        return
    running.start()
    try:
        yield found, running
    finally:
        running.kill()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=4_000_000, help="of 100 B; a quarter of 1 KB")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", type=float, default=0, help="GB of a topic to write and read")
    parser.add_argument("--codecs", nargs="+", default=CODECS)
    parser.add_argument("--values", nargs="+", type=int, default=VALUE_BYTES)
    given, _ = parser.parse_known_args()
    base = Path(tempfile.mkdtemp(prefix="sparklog-bench-"))
    try:
        with connector(base) as (connector_jars, kafka):
            spark = session(connector_jars)
            sparklog.register(spark)
            bench = Bench(spark, base, kafka, given.rounds)
            found: list[Row] = []
            for value_bytes in given.values:
                count = given.rows if value_bytes == 100 else given.rows // 4
                for codec in given.codecs:
                    found += bench.sinks(count, value_bytes, codec)
                    found += bench.sources(count, value_bytes, codec)
            print_rows("Spark, both cores", found)
            print_rows("Spark, latency", bench.latency())
            if given.memory:
                print_rows("Spark, memory", bench.memory(given.memory))
            close()
            spark.stop()
    finally:
        shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    main()
