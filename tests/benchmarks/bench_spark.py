"""Sink and source in Spark, both cores, beside their ceilings, Parquet and Spark's Kafka connector.

    make bench BENCH_ARGS=spark
    make bench BENCH_ARGS="spark --only write read --codecs none --values 100 --rounds 5"

Each table's variants take turns in one session; medians of `--rounds`, after a round that doesn't
count. Before each the disk has nothing left to write, and the JVM no garbage. `noop` is Spark's
sink that drops the rows: what making them costs. Kafka and Parquet don't sync what they write; a
commit of sparklog does. The connector has a broker on this machine and the settings that make it
quickest.
"""

import argparse
import contextlib
import logging
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import sparklog
from sparklog.sink import SegmentSink, close
from tests.benchmarks import micro_batches
from tests.benchmarks.connector import FAST_READ, FAST_WRITE, connector, delete_topic
from tests.benchmarks.spark_rows import KEY_BYTES, rows, session
from tests.benchmarks.table import Row, print_rows
from tests.kafka.broker import Broker

CASES = ((100, "none"), (1000, "lz4"), (1000, "zstd"))
PARTITIONS = 4
_PARQUET = {"none": "uncompressed", "lz4": "lz4_raw"}

# What the figure of sparklog is to be, as a multiple of another variant's rate.
WRITE_TARGETS = {
    (100, "none"): {"connector": 5.0, "parquet": 1.0, "noop": 0.8},
    (1000, "lz4"): {"connector": 3.0, "noop": 0.8},
    (1000, "zstd"): {"connector": 3.0, "noop": 0.8},
}
READ_TARGETS = {
    (100, "none"): {"connector": 5.0, "parquet": 1.5, "walk": 0.8},
    (1000, "lz4"): {"parquet": 1.5, "walk": 0.8},
    (1000, "zstd"): {"parquet": 1.5, "walk": 0.8},
}
SPARKLOG = "sparklog"
Action = Callable[[str], None]


def drain(df: DataFrame) -> None:
    df.write.format("noop").mode("overwrite").save()


class Bench:
    def __init__(
        self, spark: SparkSession, base: Path, kafka: Broker | None, given: argparse.Namespace
    ) -> None:
        self.spark, self.base, self.kafka = spark, base, kafka
        self.rounds, self.wanted = given.rounds, given.variants
        self.log = str(base / "log")
        self._batch = self._topics = 0

    def _medians(
        self,
        actions: dict[str, Action],
        place: Callable[[], contextlib.AbstractContextManager[str]],
    ) -> dict[str, float]:
        """Median seconds of each by turns; who comes first is another one every round.

        `place` gives each run the name of the topic that it writes or reads.
        """
        actions = {k: v for k, v in actions.items() if not self.wanted or k in self.wanted}
        times: dict[str, list[float]] = {name: [] for name in actions}
        names = list(actions)
        for turn in range(self.rounds + 1):
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                with place() as topic:
                    os.sync()
                    self.spark._jvm.System.gc()  # type: ignore[union-attr]
                    begun = time.perf_counter()
                    actions[name](topic)
                    took = time.perf_counter() - begun
                if turn:
                    times[name].append(took)
        return {name: statistics.median(found) for name, found in times.items()}

    @contextlib.contextmanager
    def _topic(self) -> Iterator[str]:
        """A new topic of log and broker, which is gone at the end: the disk has its limits."""
        self._topics += 1
        topic = f"t{self._topics}"
        with sparklog.open(self.log, mode="rw") as log:
            log.create_topic(topic, partitions=PARTITIONS)
        if self.kafka is not None:
            self.kafka.create_topic(topic, PARTITIONS, file_delete_delay_ms=0)
        yield topic
        if self.kafka is not None:
            delete_topic(self.kafka, topic)
        with sparklog.open(self.log, mode="rw") as log:
            log.delete_topic(topic)
        shutil.rmtree(self._parquet(topic), ignore_errors=True)

    # --- writing -------------------------------------------------------------------------------

    def sink(self, df: DataFrame, codec: str, topic: str, **more: str) -> None:
        """One micro-batch of all rows, staged and committed, by a call outside of a query."""
        self._batch += 1
        offsets = self.base / "checkpoint" / "offsets"
        offsets.mkdir(parents=True, exist_ok=True)
        (offsets / str(self._batch)).write_text(f"v1\n{{}}\n{self._batch}")
        options = {"checkpointLocation": str(offsets.parent), "writerId": "bench", **more}
        sink = SegmentSink(
            self.log, topic, partitions=PARTITIONS, compression_type=codec, **options
        )
        sink(df, self._batch)

    def native(self, df: DataFrame, codec: str, topic: str) -> None:
        """The same by `df.write`."""
        options = {
            "path": self.log, "topic": topic, "partitions": str(PARTITIONS),
            "compression.type": codec,
        }  # fmt: skip
        df.write.format("sparklog").mode("append").options(**options).save()

    def connector_sink(self, df: DataFrame, codec: str, topic: str) -> None:
        assert self.kafka is not None
        writer = df.write.format("kafka").option("kafka.bootstrap.servers", self.kafka.bootstrap)
        options = {**FAST_WRITE, "kafka.compression.type": codec, "topic": topic}
        writer.options(**options).save()

    def parquet_sink(self, df: DataFrame, codec: str, name: str) -> None:
        codec = _PARQUET.get(codec, codec)
        df.write.mode("overwrite").option("compression", codec).parquet(self._parquet(name))

    def _parquet(self, name: str) -> str:
        return str(self.base / f"{name}.parquet")

    def writes(self, count: int, value_bytes: int, codec: str) -> list[Row]:
        df = rows(self.spark, count, value_bytes)
        actions: dict[str, Action] = {
            "noop": lambda topic: drain(df),
            SPARKLOG: lambda topic: self.sink(df, codec, topic),
            "sparklog, df.write": lambda topic: self.native(df, codec, topic),
            "sparklog, jvm=false": lambda topic: self.sink(df, codec, topic, jvm="false"),
            "parquet": lambda topic: self.parquet_sink(df, codec, topic),
        }
        if self.kafka is not None:
            actions["connector"] = lambda topic: self.connector_sink(df, codec, topic)
        took = self._medians(actions, self._topic)
        targets = WRITE_TARGETS.get((value_bytes, codec), {})
        return _rows(f"write {value_bytes} B {codec}", took, count, value_bytes, targets)

    # --- reading -------------------------------------------------------------------------------

    def source(self, topic: str, **more: str) -> DataFrame:
        options = {"path": self.log, "subscribe": topic, **more}
        return self.spark.read.format("sparklog").options(**options).load()

    def connector_source(self, topic: str) -> DataFrame:
        assert self.kafka is not None
        reader = self.spark.read.format("kafka").options(**FAST_READ).option("subscribe", topic)
        return reader.option("kafka.bootstrap.servers", self.kafka.bootstrap).load()

    def reads(self, count: int, value_bytes: int, codec: str) -> list[Row]:
        """All seven columns of a topic, into Spark's noop sink."""
        df = rows(self.spark, count, value_bytes)
        actions: dict[str, Action] = {
            SPARKLOG: lambda topic: drain(self.source(topic)),
            "sparklog, jvm=false": lambda topic: drain(self.source(topic, jvm="false")),
            "parquet": lambda topic: drain(self.spark.read.parquet(self._parquet(topic))),
        }
        with self._topic() as topic:
            self.sink(df, codec, topic)
            self.parquet_sink(self.source(topic), codec, topic)
            if self.kafka is not None:
                self.connector_sink(df, codec, topic)
                actions["connector"] = lambda topic: drain(self.connector_source(topic))
            took = self._medians(actions, lambda: contextlib.nullcontext(topic))
        targets = READ_TARGETS.get((value_bytes, codec), {})
        return _rows(f"read {value_bytes} B {codec}", took, count, value_bytes, targets)

    # --- memory --------------------------------------------------------------------------------

    def memory(self, gigabytes: float) -> list[Row]:
        """Peak resident memory of Python while a topic of that size is written and read."""
        count = int(gigabytes * 1e9 / (KEY_BYTES + 1000))
        df = rows(self.spark, count, 1000)
        peaks = {}
        with watched() as peak:
            self.sink(df, "none", "memory", jvm="false")
        peaks["sink"] = peak[0]
        with watched() as peak:
            drain(self.source("memory", jvm="false"))
        peaks["source"] = peak[0]
        return [
            Row(f"{name}, {gigabytes} GB", f"{size / 1e6:.0f} MB", None, "peak RSS", "500 MB")
            for name, size in peaks.items()
        ]


def _rows(
    name: str, took: dict[str, float], count: int, value_bytes: int, targets: dict[str, float]
) -> list[Row]:
    """A line for each variant: its rate, and how many times that sparklog's is."""
    found = []
    for variant, seconds in took.items():
        size = count * (KEY_BYTES + value_bytes)
        figure = f"{count / seconds / 1e6:.2f} M rows/s, {size / seconds / 1e6:.0f} MB/s"
        if variant == SPARKLOG:
            found.append(Row(f"{name}: {variant}", figure))
            continue
        times, least = seconds / took[SPARKLOG], targets.get(variant)
        verdict = ""
        if least is not None:
            verdict = f">= {least}: {'met' if times >= least else 'NOT MET'}"
        found.append(Row(f"{name}: {variant}", figure, times, "sparklog / this", verdict))
    return found


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


def main() -> None:
    parser = argparse.ArgumentParser(prog="spark")
    parser.add_argument("--rows", type=int, default=8_000_000, help="of 100 B; an eighth of 1 KB")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--memory", type=float, default=0, help="GB of a topic to write and read")
    parser.add_argument("--codecs", nargs="+", default=("none", "lz4", "zstd"))
    parser.add_argument("--values", nargs="+", type=int, default=(100, 1000))
    parser.add_argument("--variants", nargs="+", default=(), help="names; all of them if empty")
    parser.add_argument("--only", nargs="+", default=("write", "read", "latency"))
    micro_batches.add_arguments(parser)
    given, _ = parser.parse_known_args()
    logging.basicConfig(level=logging.WARNING)
    logging.getLogger("sparklog").setLevel(logging.INFO)  # which path runs, and why not the other
    base = Path(tempfile.mkdtemp(prefix="sparklog-bench-"))
    print(f"load average at the start: {os.getloadavg()[0]:.1f}")
    try:
        with connector(base) as (connector_jars, kafka):
            spark = session(connector_jars)
            sparklog.register(spark)
            bench = Bench(spark, base, kafka, given)
            cases = [c for c in CASES if c[0] in given.values and c[1] in given.codecs]
            for value_bytes, codec in cases:
                count = given.rows if value_bytes == 100 else given.rows // 8
                if "write" in given.only:
                    found = bench.writes(count, value_bytes, codec)
                    print_rows(f"Spark, both cores: write {value_bytes} B {codec}", found)
                if "read" in given.only:
                    found = bench.reads(count, value_bytes, codec)
                    print_rows(f"Spark, both cores: read {value_bytes} B {codec}", found)
            if "latency" in given.only:
                micro_batches.measure(spark, base, kafka, given)
            if given.memory:
                print_rows("Spark, memory", bench.memory(given.memory))
            close()
            spark.stop()
    finally:
        shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    main()
