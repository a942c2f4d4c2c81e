"""Checkpoints as logs beside Spark's two managers: latency of a micro-batch, files, start-up.

    make bench BENCH_ARGS=state                      latency, and 300 batches of 20 partitions
    make bench BENCH_ARGS="state --batches 2000"     as many batches as that

The managers take turns in one JVM; a ratio is of medians. Spark's own managers sync nothing.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import sparklog
from sparklog.session.setup import MANAGER, MANAGER_KEY
from tests.benchmarks.table import Row, print_rows

_CHECKPOINTING = "org.apache.spark.sql.execution.streaming.checkpointing"
MANAGERS = {
    "FileContext (default)": f"{_CHECKPOINTING}.FileContextBasedCheckpointFileManager",
    "FileSystem": f"{_CHECKPOINTING}.FileSystemBasedCheckpointFileManager",
    "sparklog": MANAGER,
}
_STATE = "spark.sql.streaming.stateStore"
_PACKAGE = "org.apache.spark.sql.execution.streaming.state"
PROVIDERS = {
    "HDFS": {f"{_STATE}.providerClass": f"{_PACKAGE}.HDFSBackedStateStoreProvider"},
    "RocksDB, changelog": {
        f"{_STATE}.providerClass": f"{_PACKAGE}.RocksDBStateStoreProvider",
        f"{_STATE}.rocksdb.changelogCheckpointing.enabled": "true",
    },
}
WARM, MEASURED, ROUNDS = 15, 40, 3


def start_spark() -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    for key, value in sparklog.spark_conf({"spark.driver.memory": "4g"}).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def counts(spark: SparkSession, *, stateful: bool) -> DataFrame:
    rows = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", 20)
        .option("numPartitions", 1)
        .load()
    )
    return rows.selectExpr("value % 10 k").groupBy("k").count() if stateful else rows


def run(spark: SparkSession, checkpoint: Path, batches: int, *, stateful: bool) -> list[float]:
    """Run `batches` more micro-batches; return their times in ms, and first the start-up's."""
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", str(batches + 10))
    began = time.perf_counter()
    query = (
        counts(spark, stateful=stateful)
        .writeStream.format("noop")
        .outputMode("update" if stateful else "append")
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime="0 seconds")
        .start()
    )
    started = 0.0
    first = None
    while first is None or query.lastProgress["batchId"] < first + batches:
        if query.exception() is not None:
            raise query.exception()
        if first is None and query.lastProgress is not None:
            started, first = time.perf_counter() - began, query.lastProgress["batchId"]
        time.sleep(0.005 if first is None else 0.05)
    query.stop()
    return [started * 1000, *(p["durationMs"]["triggerExecution"] for p in query.recentProgress)]


def session(spark: SparkSession, manager: str, provider: str, partitions: int) -> SparkSession:
    new = spark.newSession()
    settings = {
        MANAGER_KEY: MANAGERS[manager],
        **PROVIDERS[provider],
        "spark.sql.shuffle.partitions": str(partitions),
    }
    for key, value in settings.items():
        new.conf.set(key, value)
    return new


def latency(spark: SparkSession, home: Path, provider: str, *, stateful: bool) -> Row:
    times: dict[str, list[float]] = {name: [] for name in MANAGERS}
    for turn in range(ROUNDS):
        for name in MANAGERS:
            checkpoint = home / f"{provider}-{stateful}-{turn}-{name}"
            took = run(
                session(spark, name, provider, 2), checkpoint, WARM + MEASURED, stateful=stateful
            )
            times[name] += took[1 + WARM :]
    medians = {name: statistics.median(values) for name, values in times.items()}
    default, plain, ours = medians.values()
    what = f"stateful, {provider}" if stateful else "stateless"
    beside = f"{default:.0f} ms default, {plain:.0f} ms FileSystem"
    return Row(f"micro-batch, {what}", f"{ours:.0f} ms", ours / default, beside, "<= 0.6")


def footprint(spark: SparkSession, home: Path, batches: int, partitions: int) -> list[Row]:
    found = {}
    for name in ("FileContext (default)", "sparklog"):
        checkpoint = home / f"many-{name}"
        run(session(spark, name, "HDFS", partitions), checkpoint, batches, stateful=True)
        starts = [
            run(session(spark, name, "HDFS", partitions), checkpoint, 1, stateful=True)[0]
            for _ in range(3)
        ]
        files = [p for p in checkpoint.rglob("*") if p.is_file()]
        found[name] = (len(files), sum(p.stat().st_size for p in files), statistics.median(starts))
    (files_before, bytes_before, start_before), (files_now, bytes_now, start_now) = found.values()
    limit = 8 * partitions + 8
    size, before = f"{bytes_now >> 10} KiB", f"{bytes_before >> 10} KiB"
    return [
        Row("files", f"{files_now}", files_now / files_before, f"{files_before}", f"<= {limit}"),
        Row("bytes", size, bytes_now / bytes_before, before),
        Row("start-up", f"{start_now:.0f} ms", start_now / start_before, f"{start_before:.0f} ms"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="state")
    parser.add_argument("--batches", type=int, default=300)
    parser.add_argument("--partitions", type=int, default=20)
    parser.add_argument("--only", choices=("latency", "footprint"))
    given = parser.parse_args()
    spark = start_spark()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        if given.only != "footprint":
            rows = [latency(spark, Path(home), "HDFS", stateful=False)]
            rows += [latency(spark, Path(home), name, stateful=True) for name in PROVIDERS]
            print_rows("Latency of a micro-batch, fsync on", rows)
        if given.only != "latency":
            rows = footprint(spark, Path(home), given.batches, given.partitions)
            print_rows(f"A checkpoint after {given.batches} stateful batches", rows)
    spark.stop()
