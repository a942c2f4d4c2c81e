"""Rewriting the state of a streaming query: how long a call takes, by provider and change.

    make bench BENCH_ARGS=rewrite                      1 million keys, 20 partitions
    make bench BENCH_ARGS="rewrite --large"            10 million keys, 200 partitions

The state is a count and a sum per key (a string); the query that makes it is not measured. A copy
of the files of the checkpoint (`cp`), measured in turn with the calls, shows how the disk works.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import sparklog
from sparklog.checkpoint import diff, rewrite
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


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench rewrite")
    parser.add_argument("--large", action="store_true")
    given = parser.parse_args()
    keys, partitions = (10_000_000, 200) if given.large else (1_000_000, 20)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "6g").config("spark.log.level", "ERROR")
        .config("spark.ui.showConsoleProgress", "false").getOrCreate()
    )  # fmt: skip
    sparklog.enable(spark, checkpoints=False)
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        for provider in PROVIDERS:
            make(spark, root / provider, keys, partitions, provider)
        calls: dict[str, tuple[str, dict[str, Any]]] = {
            "hdfs -> hdfs, function": ("hdfs", {"with_": same}),
            "hdfs -> rocksdb": ("hdfs", {"provider": "rocksdb"}),
            "rocksdb -> hdfs": ("rocksdb", {"provider": "hdfs"}),
            f"hdfs, {partitions} -> {partitions * 2}": ("hdfs", {"partitions": partitions * 2}),
        }
        took: dict[str, list[float]] = {name: [] for name in [*calls, "diff", "cp"]}
        for _ in range(1 if given.large else REPEATS):
            for name, (provider, change) in calls.items():
                begun = time.monotonic()
                rewrite(root / provider, root / "new", spark=spark, **change)
                took[name].append(time.monotonic() - begun)
                shutil.rmtree(root / "new")
            begun = time.monotonic()
            assert diff(root / "hdfs", root / "rocksdb", spark=spark).is_equal
            took["diff"].append(time.monotonic() - begun)
            begun = time.monotonic()
            shutil.copytree(root / "hdfs", root / "new")
            took["cp"].append(time.monotonic() - begun)
            shutil.rmtree(root / "new")
        print(f"{keys} keys in {partitions} partitions")
        for name, seconds in took.items():
            least = min(seconds)
            print(f"{name:28} {least:7.1f} s {keys / least / 1e6:8.2f} M rows/s")
    spark.stop()


if __name__ == "__main__":
    main()
