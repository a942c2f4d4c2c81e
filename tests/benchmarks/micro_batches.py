"""Latency of a micro-batch of 1,000 rows: log to log, and Kafka to Kafka by Spark's connector.

Each variant is a query with trigger processingTime=0 that reads a topic of one partition, which a
process of its own feeds, and writes another one of the same log, or broker. They take turns in one
session; a time is Spark's own triggerExecution, of a micro-batch that had rows.
"""

import argparse
import contextlib
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

import sparklog
from sparklog.session.setup import MANAGER, MANAGER_KEY
from sparklog.sink import SegmentSink
from tests.benchmarks.table import Row, print_rows
from tests.kafka.broker import Broker

ROWS = 1000
MEDIAN_MS_MAX, P99_MS_MAX, SHARE_MAX = 80, 200, 0.5
SPARKS_MANAGER = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager"
)
_SHOWN = ("latestOffset", "queryPlanning", "getBatch", "walCommit", "addBatch", "commitOffsets")
_WAIT_S_MAX = 600


@dataclass(slots=True)
class Variant:
    """A query: what feeds it, its checkpoint manager, how it is made of a session."""

    name: str
    side: str
    manager: str
    start: Callable[[SparkSession, str], DataStreamWriter]
    times: list[dict[str, int]] = field(default_factory=list)  # durationMs of each micro-batch

    def of(self, phase: str) -> list[int]:
        return [each.get(phase, 0) for each in self.times]


class Latency:
    def __init__(self, base: Path, kafka: Broker | None, given: argparse.Namespace) -> None:
        self.base, self.kafka, self.given = base, kafka, given
        self.log = str(base / "latency-log")
        with sparklog.open(self.log, mode="rw") as log:
            for topic in ("in", "out-foreach", "out-native", "out-python"):
                log.create_topic(topic)
        if kafka is not None:
            for topic in ("in", "out"):
                kafka.create_topic(topic, 1)

    def variants(self) -> list[Variant]:
        found = [
            Variant("sparklog", "log", MANAGER, lambda s, c: self._foreach(s, "out-foreach")),
            Variant("sparklog, writeStream.format", "log", MANAGER, self._native),
            Variant(
                "sparklog, jvm=false", "log", MANAGER,
                lambda s, c: self._foreach(s, "out-python", jvm="false"),
            ),
        ]  # fmt: skip
        if self.kafka is not None:
            found += [
                Variant("connector, log-backed checkpoint", "kafka", MANAGER, self._connector),
                Variant("connector", "kafka", SPARKS_MANAGER, self._connector),
            ]
        wanted = self.given.variants
        return [v for v in found if not wanted or v.name in wanted]

    def _source(self, spark: SparkSession, **more: str) -> Any:
        options = {
            "path": self.log, "subscribe": "in", "startingOffsets": "latest",
            "maxOffsetsPerTrigger": str(ROWS), **more,
        }  # fmt: skip
        return spark.readStream.format("sparklog").options(**options).load().select("key", "value")

    def _foreach(self, spark: SparkSession, topic: str, **more: str) -> DataStreamWriter:
        sink = SegmentSink(self.log, topic, **more)
        return self._source(spark, **more).writeStream.foreachBatch(sink)

    def _native(self, spark: SparkSession, checkpoint: str) -> DataStreamWriter:
        options = {"path": self.log, "topic": "out-native"}
        return self._source(spark).writeStream.format("sparklog").options(**options)

    def _connector(self, spark: SparkSession, checkpoint: str) -> DataStreamWriter:
        assert self.kafka is not None
        servers = {"kafka.bootstrap.servers": self.kafka.bootstrap}
        reader = spark.readStream.format("kafka").options(**servers, subscribe="in")
        reader = reader.options(startingOffsets="latest", maxOffsetsPerTrigger=str(ROWS))
        df = reader.load().select("key", "value")
        return df.writeStream.format("kafka").options(**servers).option("topic", "out")

    @contextlib.contextmanager
    def _feeding(self, side: str) -> Iterator[None]:
        place = self.log if side == "log" else self.kafka.bootstrap  # type: ignore[union-attr]
        every = str(self.given.every_ms)
        command = [sys.executable, "-m", "tests.benchmarks.feeder", place, "in"]
        feeder = subprocess.Popen([*command, "--every-ms", every], stdin=subprocess.PIPE)
        try:
            yield
        finally:
            feeder.communicate()

    def run(self, spark: SparkSession, variant: Variant, counted: int) -> None:
        """Add the times of `counted` micro-batches to the variant's, after a warm-up."""
        own = spark.newSession()
        own.conf.set(MANAGER_KEY, variant.manager)
        wanted = counted + self.given.warm
        own.conf.set("spark.sql.streaming.numRecentProgressUpdates", str(2 * wanted + 100))
        checkpoint = tempfile.mkdtemp(dir=self.base)
        writer = variant.start(own, checkpoint)
        query = (
            writer.option("checkpointLocation", checkpoint)
            .trigger(processingTime="0 seconds")
            .start()
        )
        with self._feeding(variant.side):
            self._wait(query, wanted)
        query.processAllAvailable()  # a query that is stopped at work prints long traces
        found = [p["durationMs"] for p in query.recentProgress if p["numInputRows"] == ROWS]
        query.stop()
        variant.times += found[self.given.warm : wanted]

    @staticmethod
    def _wait(query: StreamingQuery, batches: int) -> None:
        """Wait until so many micro-batches have ended; seldom, as each look costs the query."""
        until = time.monotonic() + _WAIT_S_MAX
        while (query.lastProgress or {"batchId": 0})["batchId"] < batches + 5:
            assert query.isActive, query.exception()
            assert time.monotonic() < until, "the query is too slow"
            time.sleep(1)


def measure(
    spark: SparkSession, base: Path, kafka: Broker | None, given: argparse.Namespace
) -> None:
    """Run all variants by turns, and print their figures and where the time goes."""
    latency = Latency(base, kafka, given)
    variants = latency.variants()
    for _ in range(given.turns):
        for variant in variants:
            latency.run(spark, variant, -(-given.batches // given.turns))
    if given.raw:
        raw = {variant.name: variant.times for variant in variants}
        Path(given.raw).write_text(json.dumps(raw))
    print_rows(f"Spark, a micro-batch of {ROWS} rows", summary(variants))
    print_phases(variants)


def summary(variants: list[Variant]) -> list[Row]:
    medians = {v.name: statistics.median(v.of("triggerExecution")) for v in variants}
    found = []
    for variant in variants:
        times = variant.of("triggerExecution")
        median, p99 = medians[variant.name], percentile(times, 99)
        figure = f"median {median:.0f} ms, p99 {p99} ms, max {max(times)} ms"
        if variant.side == "kafka" or variant.name.endswith("jvm=false"):
            found.append(Row(variant.name, figure))
            continue
        good = median < MEDIAN_MS_MAX and p99 < P99_MS_MAX
        target = f"< {MEDIAN_MS_MAX}, < {P99_MS_MAX}: {'met' if good else 'NOT MET'}"
        found.append(Row(variant.name, figure, None, "", target))
        for other in (v for v in variants if v.side == "kafka"):
            share = median / medians[other.name]
            verdict = f"<= {SHARE_MAX}: {'met' if share <= SHARE_MAX else 'NOT MET'}"
            is_target = other.manager != MANAGER  # whoever has no sparklog has no such checkpoint
            figure = f"{median:.0f} ms"
            found.append(Row(variant.name, figure, share, other.name, verdict * is_target))
    return found


def print_phases(variants: list[Variant]) -> None:
    """Where the time goes, by Spark's names: median / p99 in ms."""
    print("\n| ms, median / p99 | " + " | ".join(_SHOWN) + " |")
    print("|---" * (len(_SHOWN) + 1) + "|")
    for variant in variants:
        cells = [
            f"{statistics.median(variant.of(p)):.0f} / {percentile(variant.of(p), 99):.0f}"
            for p in _SHOWN
        ]
        print(f"| {variant.name} | " + " | ".join(cells) + " |", flush=True)


def percentile(values: list[int], percent: float) -> int:
    """The value that `percent` of them don't pass."""
    return sorted(values)[math.ceil(len(values) * percent / 100) - 1]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--batches", type=int, default=500, help="micro-batches of each variant")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--warm", type=int, default=30, help="micro-batches that don't count")
    parser.add_argument("--every-ms", type=float, default=100, help="the feeder's 1,000 rows")
    parser.add_argument("--raw", help="a file for the durations, as JSON")
