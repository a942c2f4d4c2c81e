"""A driver that tests start as an application of its own, kill, or hand to spark-submit.

driver.py stream LOG BASE   two queries for ever: foreachBatch into topic a, format() into b
driver.py once LOG BASE     one large micro-batch into topic c, and back; prints its count; then
                            two of a query with state
"""

import os
import sys
import time
from pathlib import Path
from typing import Any

ROWS = 200


def session() -> Any:
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.config("spark.ui.enabled", "false").config(
        "spark.driver.host", "127.0.0.1"
    )
    if "SUBMITTED" not in os.environ:
        builder = builder.master("local[2]")
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def stream(log: str, base: Path) -> None:
    from sparklog.sink import SegmentSink

    spark = session()

    def source() -> Any:
        return (
            spark.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", ROWS)
            .option("numPartitions", 2)
            .load()
            .selectExpr("cast(value as string) as value", "cast(value as string) as key")
        )

    sink = SegmentSink(log, "a", partitions=2)
    (
        source()
        .writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(base / "a"))
        .trigger(processingTime="0 seconds")
        .start()
    )
    (
        source()
        .writeStream.format("sparklog")
        .option("path", log)
        .option("topic", "b")
        .option("partitions", "2")
        .option("checkpointLocation", str(base / "b"))
        .trigger(processingTime="0 seconds")
        .start()
    )
    spark.streams.awaitAnyTermination()
    time.sleep(1)


def once(log: str, base: Path) -> None:
    import sparklog
    from sparklog import sink

    spark = session()
    sparklog.register(spark)
    (base / "offsets").mkdir(parents=True)
    (base / "offsets" / "0").write_text("v1\n{}\n0")
    df = spark.range(0, 20_000, 1, 4).selectExpr("cast(id as string) value", "'c' as topic")
    sink.SegmentSink(log, writerId="once", checkpointLocation=str(base), partitions=2)(df, 0)
    rows = spark.read.format("sparklog").options(path=log, subscribe="c").load()
    print("rows", rows.count(), rows.select("value").distinct().count(), flush=True)
    for _ in range(2):
        count(spark, base / "stateful")
    sink.close(log)
    spark.stop()


def count(spark: Any, checkpoint: Path) -> None:
    """One micro-batch of a query with state."""
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    query = (
        rows.groupBy("value")
        .count()
        .writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    {"stream": stream, "once": once}[sys.argv[1]](sys.argv[2], Path(sys.argv[3]))
