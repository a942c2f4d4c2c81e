"""Rewriting the state of a streaming query: how long a call takes, by provider and change.

    make bench BENCH_ARGS=rewrite                      1 million keys, 20 partitions
    make bench BENCH_ARGS="rewrite --large"            10 million keys, 200 partitions
    make bench BENCH_ARGS="rewrite --memory 1g"        with a heap of 1 GiB for two tasks at a time

The state is a count and a sum per key (a string); the query that makes it is not measured. A copy
of the files of the checkpoint (`cp`), measured in turn with the calls, shows how the disk works.
The heap is what the driver, with two tasks at a time, used at most; much of it is garbage if the
heap is large. RocksDB's memory is in the resident size only.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import sparklog
from sparklog.checkpoint import diff, erase, rewrite
from sparklog.state.change import PROVIDERS

REPEATS = 2


def same(frame: DataFrame) -> DataFrame:
    """Change each value, and no key."""
    total = (F.col("value.sum") + 1).alias("sum")
    return frame.withColumn("value", F.struct("value.count", total))


def make(spark: SparkSession, checkpoint: Path, keys: int, partitions: int, provider: str) -> None:
    """Run a query for one micro-batch that has each key once."""
    spark.conf.set("spark.sql.shuffle.partitions", partitions)
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", PROVIDERS[provider])
    rows = (
        spark.readStream.format("rate-micro-batch").option("rowsPerBatch", keys)
        .option("numPartitions", 8).load()
        .selectExpr("concat('customer-', value) AS key", "value")
    )  # fmt: skip
    counted = rows.groupBy("key").agg(F.count("*"), F.sum("value"))
    query = (
        counted.writeStream.outputMode("update").format("noop")
        .option("checkpointLocation", str(checkpoint)).start()
    )  # fmt: skip
    while query.lastProgress is None:
        time.sleep(0.1)
    query.stop()


def session(memory: str) -> SparkSession:
    return (
        SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        .config("spark.driver.memory", memory).config("spark.log.level", "ERROR")
        .config("spark.ui.showConsoleProgress", "false").getOrCreate()
    )  # fmt: skip


class Memory:
    """The memory that the driver's JVM has used at most since the last reset, in MiB."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        factory = jvm.java.lang.management.ManagementFactory
        pools = factory.getMemoryPoolMXBeans()
        self._pools = [each for each in pools if each.getType().name() == "HEAP"]
        self._process = Path(f"/proc/{jvm.java.lang.ProcessHandle.current().pid()}")

    def reset(self) -> None:
        for pool in self._pools:
            pool.resetPeakUsage()
        (self._process / "clear_refs").write_text("5")  # proc(5): reset the peak resident size

    def heap(self) -> int:
        return int(sum(pool.getPeakUsage().getUsed() for pool in self._pools)) >> 20

    def resident(self) -> int:
        lines = (self._process / "status").read_text().splitlines()
        return next(int(line.split()[1]) >> 10 for line in lines if line.startswith("VmHWM"))


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench rewrite")
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--memory", default="6g", help="The heap of the driver and its tasks.")
    parser.add_argument("--make", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    keys, partitions = (10_000_000, 200) if given.large else (1_000_000, 20)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    if given.make is not None:
        spark = session("6g")
        for provider in PROVIDERS:
            make(spark, given.make / provider, keys, partitions, provider)
        return
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        # The HDFS-backed provider keeps the state of all partitions in memory while a query runs.
        size = ["--large"] if given.large else []
        command = [sys.executable, "-m", "tests.benchmarks.bench_rewrite", "--make", root, *size]
        subprocess.run(command, check=True)
        spark = session(given.memory)
        sparklog.enable(spark, checkpoints=False)
        hdfs, rocksdb = root / "hdfs", root / "rocksdb"
        calls: dict[str, Callable[..., Any]] = {
            "hdfs -> hdfs, function": partial(rewrite, hdfs, with_=same),
            "hdfs -> rocksdb": partial(rewrite, hdfs, provider="rocksdb"),
            "rocksdb -> hdfs": partial(rewrite, rocksdb, provider="hdfs"),
            f"hdfs, {partitions} -> {partitions * 2}": partial(
                rewrite, hdfs, partitions=partitions * 2
            ),
            "hdfs, erase": partial(erase, hdfs, where="key.key = 'customer-7'"),
        }
        took: dict[str, list[float]] = {name: [] for name in [*calls, "diff", "cp"]}
        used: dict[str, tuple[int, int]] = {}
        memory = Memory(spark)
        for _ in range(1 if given.large else REPEATS):
            for name, call in calls.items():
                memory.reset()
                begun = time.monotonic()
                call(target=root / "new", spark=spark)
                took[name].append(time.monotonic() - begun)
                used[name] = memory.heap(), memory.resident()
                shutil.rmtree(root / "new")
            memory.reset()
            begun = time.monotonic()
            assert diff(hdfs, rocksdb, spark=spark).is_equal
            took["diff"].append(time.monotonic() - begun)
            used["diff"] = memory.heap(), memory.resident()
            begun = time.monotonic()
            shutil.copytree(root / "hdfs", root / "new")
            took["cp"].append(time.monotonic() - begun)
            shutil.rmtree(root / "new")
        print(f"{keys} keys in {partitions} partitions, heap of {given.memory}")
        for name, seconds in took.items():
            least = min(seconds)
            peaks = ""
            if name in used:
                peaks = f" {used[name][0]:6} MiB of heap {used[name][1]:6} MiB resident"
            print(f"{name:28} {least:7.1f} s {keys / least / 1e6:8.2f} M rows/s{peaks}")
    spark.stop()


if __name__ == "__main__":
    main()
