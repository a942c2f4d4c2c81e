"""Rows for the Spark benchmarks, and a session that has both sparklog's jar and the connector's."""

import os
import sys
from collections.abc import Mapping

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import sparklog

KEY_BYTES = 16
TASKS = 2
_PLACES = ("EWR", "JFK", "LGA", "ATL", "ORD", "SFO", "MIA")


def session(jars: list[str], conf: Mapping[str, str] | None = None) -> SparkSession:
    """A session of two cores with the settings of `sparklog.spark_conf`."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    wanted = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "3g",
        "spark.jars": ",".join(jars),
        **(conf or {}),
    }
    builder = SparkSession.builder.master(f"local[{TASKS}]").appName("bench")
    for key, value in sparklog.spark_conf(wanted).items():
        builder = builder.config(key, value)
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


def rows(spark: SparkSession, count: int, value_bytes: int) -> DataFrame:
    """`count` rows of 16-byte keys, values that compress as JSON does.

    Made of what Spark does fastest: a hash or lpad in their place takes half of the time of all.
    """
    text = sample_text(1 << 20)
    at = (F.col("id") * 7919 % F.lit(len(text) - value_bytes)).cast("int") + 1
    return spark.range(0, count, 1, TASKS).select(
        (F.col("id") + 10 ** (KEY_BYTES - 1)).cast("string").cast("binary").alias("key"),
        F.substring(F.lit(text), at, F.lit(value_bytes)).alias("value"),
    )
