"""Stateful queries, one for each operator: what Spark's default manager gives, ours must."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from tests.waiting import until

Output = dict[int, list[tuple[Any, ...]]]
Operator = Callable[[SparkSession], tuple[DataFrame, str]]


def source(spark: SparkSession, rows: int = 20) -> DataFrame:
    """Rows that depend on the batch's number alone: value 0, 1, ..., an event time, a key."""
    return (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", rows)
        .option("numPartitions", 1)
        .option("startTimestamp", 1_700_000_000_000)
        .option("advanceMillisPerBatch", 4_000)
        .load()
        .withColumn("k", F.col("value") * 7 % 10)
        .withWatermark("timestamp", "5 seconds")
    )


def aggregation(spark: SparkSession) -> tuple[DataFrame, str]:
    return source(spark).groupBy("k").agg(F.count("*"), F.sum("value")), "update"


def windows(spark: SparkSession) -> tuple[DataFrame, str]:
    window = F.window("timestamp", "10 seconds", "5 seconds")
    return source(spark).groupBy(window, "k").count().select("window.start", "k", "count"), "append"


def session_windows(spark: SparkSession) -> tuple[DataFrame, str]:
    rows = source(spark).where("k = int(value / 20) % 10")  # a key a batch: its session ends
    counted = rows.groupBy(F.session_window("timestamp", "6 seconds"), "k").count()
    return counted.select("session_window.start", "session_window.end", "k", "count"), "append"


def drop_duplicates(spark: SparkSession) -> tuple[DataFrame, str]:
    return source(spark).select("k", (F.col("value") / 50).cast("int").alias("v")).dropDuplicates(
        ["k", "v"]
    ), "append"


def drop_duplicates_within(spark: SparkSession) -> tuple[DataFrame, str]:
    return source(spark).dropDuplicatesWithinWatermark(["k"]).select("k", "value"), "append"


def join(spark: SparkSession) -> tuple[DataFrame, str]:
    left = source(spark).alias("a")
    right = source(spark, 13).where("value % 3 = 0").alias("b")
    near = F.expr(
        "a.value = b.value and b.timestamp between a.timestamp - interval 60 seconds "
        "and a.timestamp + interval 60 seconds"
    )
    return left.join(right, near, "inner").select("a.value", "b.k"), "append"


def _counted(
    key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    seen = state.get[0] if state.exists else 0
    seen += sum(len(frame) for frame in frames)
    state.update((seen,))
    yield pd.DataFrame({"k": [key[0]], "seen": [seen]})


def pandas_with_state(spark: SparkSession) -> tuple[DataFrame, str]:
    grouped = source(spark).groupBy("k")
    return grouped.applyInPandasWithState(
        _counted, "k long, seen long", "seen long", "update", GroupStateTimeout.NoTimeout
    ), "update"


class Counter(StatefulProcessor):
    """Counts by key, and keeps the last values in a list and the sums in a map."""

    def init(self, handle: Any) -> None:
        self._seen = handle.getValueState("seen", "seen long")
        self._last = handle.getListState("last", "value long")

    def handleInputRows(
        self, key: Any, rows: Iterable[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        values = [int(v) for frame in rows for v in frame["value"]]
        seen = (self._seen.get()[0] if self._seen.exists() else 0) + len(values)
        self._seen.update((seen,))
        self._last.appendList([(v,) for v in values[-2:]])
        total = sum(row[0] for row in self._last.get())
        yield pd.DataFrame({"k": [key[0]], "seen": [seen], "total": [total]})

    def close(self) -> None:
        pass


def transform_with_state(spark: SparkSession) -> tuple[DataFrame, str]:
    return source(spark).groupBy("k").transformWithStateInPandas(
        Counter(), "k long, seen long, total long", "Update", "none"
    ), "update"


OPERATORS: dict[str, Operator] = {
    operator.__name__: operator
    for operator in (
        aggregation,
        windows,
        session_windows,
        drop_duplicates,
        drop_duplicates_within,
        join,
        pandas_with_state,
        transform_with_state,
    )
}

OTHERS: dict[str, Operator] = {}
"""Queries of single test modules, by the names under which `start` finds them."""

_STATE = "spark.sql.streaming.stateStore"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
PROVIDERS = {
    "hdfs": {
        f"{_STATE}.providerClass": "org.apache.spark.sql.execution.streaming.state."
        "HDFSBackedStateStoreProvider"
    },
    "rocksdb": {f"{_STATE}.providerClass": _ROCKSDB},
    "changelog": {
        f"{_STATE}.providerClass": _ROCKSDB,
        f"{_STATE}.rocksdb.changelogCheckpointing.enabled": "true",
    },
}


def start(spark: SparkSession, operator: str, checkpoint: Path, output: Output) -> StreamingQuery:
    """Start the query; `output` gets the rows of each batch, which a replay must give again."""
    frame, mode = (OTHERS | OPERATORS)[operator](spark)

    def take(rows: DataFrame, batch: int) -> None:
        found = sorted(map(tuple, rows.collect()))
        assert output.setdefault(batch, found) == found

    return (
        frame.writeStream.foreachBatch(take)
        .outputMode(mode)
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime="0 seconds")
        .start()
    )


def run(spark: SparkSession, operator: str, checkpoint: Path, output: Output, last: int) -> None:
    """Run the query until batch `last` is committed."""
    query = start(spark, operator, checkpoint, output)
    try:

        def is_done() -> bool:
            if query.exception() is not None:
                raise query.exception()  # type: ignore[misc]
            return query.lastProgress is not None and query.lastProgress["batchId"] >= last

        until(is_done, f"batch {last} of {operator}", seconds=240, pause_s=0.02)
    finally:
        query.stop()


def rows_reported(spark: SparkSession, operator: str, checkpoint: Path) -> int:
    """Return the number of rows of state that Spark reports after the query's next batch."""
    query = start(spark, operator, checkpoint, {})
    try:
        until(lambda: len(query.recentProgress) > 0, f"a batch of {operator}", seconds=240)
        return int(query.recentProgress[0]["stateOperators"][0]["numRowsTotal"])
    finally:
        query.stop()


def session(spark: SparkSession, provider: str, manager: str | None) -> SparkSession:
    """Return a session of its own with that state store, and that checkpoint manager."""
    new = spark.newSession()
    new.conf.set("spark.sql.shuffle.partitions", "2")
    for key, value in PROVIDERS[provider].items():
        new.conf.set(key, value)
    if manager is not None:
        new.conf.set("spark.sql.streaming.checkpointFileManagerClass", manager)
    return new
