"""Checkpoints in a bucket, by each checkpoint manager: requests, latency, cost, restarts, storage.

    make bench BENCH_ARGS=bucket_state                       micro-batches and restarts
    make bench BENCH_ARGS="bucket_state --large"             the same with 50 and 200 partitions
    make bench BENCH_ARGS="bucket_state --only storage"      objects after 300 micro-batches
    make bench BENCH_ARGS="bucket_state --only hour"         requests of an hour, five times as fast

The managers take turns in one JVM. The S3 server is on the same machine, behind a proxy that counts
requests and delays each of them. Dollars are those of a micro-batch every 10 seconds, for 30 days.
Less maintenance of Spark's state stores is counted than such a query has, because the micro-batches
follow each other at once.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import s3fs  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import sparklog
from sparklog.session.setup import MANAGER, MANAGER_KEY
from tests import jars
from tests.benchmarks.bench_state import PROVIDERS
from tests.state.s3a import s3a_conf
from tests.state.stored_driver import STATE
from tests.tiered.proxy import Proxy
from tests.tiered.s3 import S3Server, started

CLOUD: Final = "org.apache.spark:spark-hadoop-cloud_2.13:4.1.1"
"""The newest in Maven; it runs with PySpark 4.3."""
DEFAULT, ABORTABLE, OURS = "Spark, default", "Spark, abortable", "sparklog"
MANAGERS: Final = {
    DEFAULT: "org.apache.spark.sql.execution.streaming.checkpointing."
    "FileContextBasedCheckpointFileManager",
    ABORTABLE: "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager",
    OURS: MANAGER,
}
DOLLARS: Final = {
    "LIST": 5e-6, "HEAD": 4e-7, "GET": 4e-7, "PUT": 5e-6, "COPY": 5e-6, "POST": 5e-6, "DELETE": 0.0,
}  # fmt: skip
"""S3 Standard in us-east-1, per request. POST is the deletion of several objects."""
BATCHES_AN_HOUR: Final = 360
BATCHES_A_MONTH: Final = 30 * 24 * BATCHES_AN_HOUR
WARM, LEAST, MOST = 3, 5, 60
"""Micro-batches of a measurement: not counted, and counted at least and at most."""


@dataclass(frozen=True)
class Load:
    """A query."""

    name: str
    partitions: int
    conf: Mapping[str, str] = field(default_factory=dict)
    value_bytes: int = 0
    managers: Sequence[str] = tuple(MANAGERS)


HDFS, ROCKSDB = PROVIDERS["HDFS"], PROVIDERS["RocksDB, changelog"]
V2: Final = {**ROCKSDB, f"{STATE}.checkpointFormatVersion": "2"}
LOADS: Final = (
    Load("stateless", 0),
    Load("HDFS, 4 partitions", 4, HDFS),
    Load("HDFS, 50 partitions", 50, HDFS),
    Load("RocksDB v2, 4 partitions", 4, V2),
)
LARGE: Final = (
    Load("HDFS, 200 partitions", 200, HDFS, managers=(OURS,)),
    Load("HDFS, 200 partitions of 50 KB", 200, HDFS, 50_000, (OURS,)),
)
HOUR: Final = Load("RocksDB, changelog, 200 partitions", 200, ROCKSDB, managers=(OURS,))


class Counting(Proxy):
    """Counts the requests per bucket, and delays them."""

    def __init__(self, target: int) -> None:
        super().__init__(target)
        self.delay_ms = 0
        self.requests: list[tuple[float, str, str]] = []
        """Second, bucket and kind."""

    def see(self, head: bytes) -> None:
        method, target = head.decode(errors="replace").split(" ", 2)[:2]
        path, _, query = target.partition("?")
        kind = method
        if method == "GET" and "list-type=" in query:
            kind = "LIST"
        elif method == "PUT" and b"x-amz-copy-source" in head.lower():
            kind = "COPY"
        self.requests.append((time.time(), path.split("/")[1], kind))
        super().see(head)
        time.sleep(self.delay_ms / 1000)

    def count(self, bucket: str, begin: float, end: float) -> Counter[str]:
        name = bucket.partition("://")[2]
        return Counter(k for t, b, k in list(self.requests) if b == name and begin <= t < end)


@dataclass
class Measured:
    """Micro-batches and their requests."""

    times_ms: list[float] = field(default_factory=list)
    batches: int = 0
    requests: Counter[str] = field(default_factory=Counter)

    def row(self) -> list[str]:
        each = {kind: self.requests[kind] / self.batches for kind in DOLLARS}
        dollars = sum(each[kind] * price for kind, price in DOLLARS.items()) * BATCHES_A_MONTH
        p95 = sorted(self.times_ms)[int(len(self.times_ms) * 0.95)]
        return [
            *(f"{count:.1f}" for count in each.values()), f"{statistics.median(self.times_ms):.0f}",
            f"{p95:.0f}", f"{dollars:.2f}", f"{len(self.times_ms)}",
        ]  # fmt: skip


class Bench:
    """A Spark session, and an S3 server behind a proxy."""

    def __init__(self, s3: S3Server) -> None:
        self.s3, self.proxy = s3, Counting(s3.port)
        self.fs = s3fs.S3FileSystem(**s3.options(), skip_instance_cache=True)
        conf = s3a_conf(s3, self.proxy.port)
        conf["spark.jars"] += "," + ",".join(jars.artifact_jars("cloud", CLOUD))
        os.environ["PYSPARK_PYTHON"] = sys.executable
        # Tasks wait for the store more than they compute.
        builder = SparkSession.builder.master("local[8]").config("spark.ui.enabled", "false")
        builder = builder.config("spark.ui.showConsoleProgress", "false")
        given = {"spark.driver.memory": "4g", "spark.driver.host": "127.0.0.1", **conf}
        for key, value in sparklog.spark_conf(given, checkpoints=False).items():
            builder = builder.config(key, value)
        self.spark = builder.getOrCreate()
        self.spark.sparkContext.setLogLevel("OFF")  # a query that is stopped logs its interruption

    def run(
        self, manager: str, load: Load, bucket: str, batches: int, *, seconds: float = 1e9,
        conf: Mapping[str, str] | None = None, every: str = "0 seconds",
    ) -> tuple[float, float, list[dict[str, Any]]]:  # fmt: skip
        """Run a query; return when it was started and when it had its first batch, and its batches.

        The query ends after `batches`, or `seconds` after the first one with the least number.
        """
        session = self.spark.newSession()
        settings = {
            MANAGER_KEY: MANAGERS[manager],
            "spark.sql.shuffle.partitions": str(load.partitions or 2),
            "spark.sql.streaming.numRecentProgressUpdates": "100000",
            **load.conf, **(conf or {}),
        }  # fmt: skip
        if manager == OURS:
            settings["spark.sql.streaming.checkpoint.fileChecksum.enabled"] = "false"
        for key, value in settings.items():
            session.conf.set(key, value)
        writer = (
            rows_of(session, load).writeStream.format("noop")
            .outputMode("update" if load.partitions else "append")
            .option("checkpointLocation", f"{bucket.replace('s3:', 's3a:')}/query")
            .trigger(processingTime=every)
        )  # fmt: skip
        begun = time.time()
        query = writer.start()
        first = 0.0
        while True:
            if (failure := query.exception()) is not None:
                raise failure
            if first == 0 and query.lastProgress is not None:
                first = time.time()
            done = len(query.recentProgress) if first else 0
            is_late = first > 0 and time.time() > first + seconds and done >= WARM + LEAST
            if done >= batches or is_late:
                break
            time.sleep(0.01 if first == 0 else 0.05)
        progress = [dict(p) for p in query.recentProgress]
        query.stop()
        # Else the maintenance of its state would disturb the next query.
        jvm: Any = self.spark._jvm
        jvm.org.apache.spark.sql.execution.streaming.state.StateStore.stop()
        return begun, first, progress

    def measure(self, load: Load, delay_ms: int, seconds: float, rounds: int) -> None:
        found = {name: Measured() for name in load.managers}
        for _ in range(rounds):
            for name, measured in found.items():
                bucket = self.s3.bucket()
                self.proxy.delay_ms = delay_ms
                _, _, progress = self.run(name, load, bucket, WARM + MOST, seconds=seconds)
                self.proxy.delay_ms = 0
                counted = progress[WARM:]
                measured.times_ms += [p["durationMs"]["triggerExecution"] for p in counted]
                measured.batches += len(counted) - 1
                between = time_of(counted[0]), time_of(counted[-1])
                measured.requests += self.proxy.count(bucket, *between)
        for name, measured in found.items():
            print_row([load.name, f"{delay_ms}", name, *measured.row()])

    def restarts(self, load: Load, batches: int, delays_ms: Sequence[int], rounds: int) -> None:
        """Start a query several times from copies of one checkpoint."""
        buckets = {name: self.s3.bucket() for name in load.managers}
        # Spark's managers write the same files.
        if DEFAULT in buckets:
            buckets[DEFAULT] = buckets[ABORTABLE]
        for name in load.managers:
            if name != DEFAULT:
                self.run(name, load, buckets[name], batches)
        for delay_ms in delays_ms:
            found = dict[str, list[tuple[float, Counter[str]]]]()
            for _ in range(rounds):
                for name, bucket in buckets.items():
                    copy = self.copied(bucket)
                    self.proxy.delay_ms = delay_ms
                    begun, first, _ = self.run(name, load, copy, 1)
                    self.proxy.delay_ms = 0
                    counted = self.proxy.count(copy, begun, first)
                    found.setdefault(name, []).append((first - begun, counted))
            for name, starts in found.items():
                took = statistics.median(seconds for seconds, _ in starts)
                requests = (f"{starts[-1][1][kind]}" for kind in DOLLARS)
                print_row([load.name, f"{delay_ms}", name, *requests, f"{took * 1000:.0f}"])

    def copied(self, bucket: str) -> str:
        copy = self.s3.bucket()
        found = self.fs.find(bucket, detail=True).values()
        # S3A's markers of directories are empty.
        names = [info["name"].partition("/")[2] for info in found if info["size"]]
        self.fs.copy([f"{bucket}/{n}" for n in names], [f"{copy}/{n}" for n in names])
        return copy

    def storage(self, load: Load, batches: int) -> None:
        for name in load.managers:
            bucket = self.s3.bucket()
            # As often as by default with a micro-batch every 10 seconds.
            self.run(name, load, bucket, batches, conf={f"{STATE}.maintenanceInterval": "2s"})
            sizes = [info["size"] for info in self.fs.find(bucket, detail=True).values()]
            print_row([load.name, name, f"{len(sizes)}", f"{sum(sizes) >> 10} KiB"])

    def hour(self, load: Load) -> None:
        """Run the micro-batches and the maintenance of an hour, one every 10 s, in 12 minutes."""
        bucket = self.s3.bucket()
        maintenance = {f"{STATE}.maintenanceInterval": "12s"}
        begun, _, progress = self.run(
            OURS, load, bucket, BATCHES_AN_HOUR, conf=maintenance, every="2 seconds"
        )
        counted = self.proxy.count(bucket, begun, time.time())
        took = [each["durationMs"]["triggerExecution"] for each in progress[WARM:]]
        print_row([
            load.name, *(f"{counted[kind]}" for kind in DOLLARS), f"{counted.total()}",
            f"{statistics.median(took):.0f}", f"{len(progress)}",
        ])  # fmt: skip

    def close(self) -> None:
        self.spark.stop()
        self.s3.kill()


def rows_of(session: SparkSession, load: Load) -> DataFrame:
    rows = (
        session.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", load.partitions if load.value_bytes else 20)
        .option("numPartitions", 1)
        .load()
    )
    if load.value_bytes:
        digest = "i -> sha2(value || ' ' || i, 256)"
        digests = f"transform(sequence(1, {load.value_bytes // 64}), {digest})"
        rows = rows.selectExpr(f"value % {load.partitions} k", f"array_join({digests}, '') v")
        return rows.groupBy("k").agg(F.last("v"))
    return rows.selectExpr("value % 10 k").groupBy("k").count() if load.partitions else rows


def time_of(progress: Mapping[str, Any]) -> float:
    return datetime.fromisoformat(progress["timestamp"]).timestamp()


def print_row(cells: Iterable[str]) -> None:
    print("|", " | ".join(cells), "|", flush=True)


def print_header(title: str, *columns: str) -> None:
    print(f"\n## {title}\n")
    print_row(columns)
    print(f"|{'--|' * len(columns)}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="bucket_state")
    parser.add_argument("--only", choices=("micro-batches", "restarts", "storage", "hour"))
    parser.add_argument(
        "--large", action="store_true", help="Queries with more partitions instead."
    )
    parser.add_argument("--delays-ms", type=int, nargs="+", default=(0, 25))
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--batches", type=int, help="Default: 60 before a restart, 300 of storage.")
    parser.add_argument("--ours", action="store_true", help="Measure storage of sparklog alone.")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        try:
            bench = Bench(started(Path(home)))
        except jars.Unavailable as reason:
            print(f"bucket_state: skipped ({reason})")
            return
        for name in MANAGERS:
            bench.run(name, LOADS[-1], bench.s3.bucket(), 10)
        if given.only in (None, "micro-batches"):
            print_header(
                "Requests per micro-batch", "query", "delay, ms", "manager", *DOLLARS,
                "median, ms", "p95, ms", "$ per month", "micro-batches",
            )  # fmt: skip
            for load in LARGE if given.large else LOADS:
                for delay_ms in given.delays_ms:
                    bench.measure(load, delay_ms, given.seconds, given.rounds)
        if given.only in (None, "restarts"):
            batches = given.batches or 60
            print_header(
                f"Restart after {batches} micro-batches, until the first one has ended", "query",
                "delay, ms", "manager", *DOLLARS, "median, ms",
            )  # fmt: skip
            usual = Load("HDFS, 20 partitions", 20, HDFS)
            for load in (LOADS[2], LARGE[0]) if given.large else (usual,):
                bench.restarts(load, batches, given.delays_ms, given.rounds)
        if given.only == "storage":
            batches = given.batches or 300
            print_header(f"Objects after {batches} micro-batches", "query", "manager", "objects",
                         "bytes")  # fmt: skip
            managers = (OURS,) if given.ours else LOADS[1].managers
            bench.storage(replace(LOADS[1], managers=managers), batches)
        if given.only == "hour":
            print_header("Requests of an hour", "query", *DOLLARS, "all", "median, ms",
                         "micro-batches")  # fmt: skip
            bench.hour(HOUR)
        bench.close()
