"""Spark's Kafka connector against a server; a program, for a session of its own with its jars.

    python spark_job.py JARS BOOTSTRAP TOPIC OTHER CHECKPOINT

It reads TOPIC in a batch, from a timestamp on, and as a stream that it writes to OTHER; prints what
it saw as JSON, {"batch": [[partition, offset, timestamp ms, key, value, headers], ...], "by_time":
[[partition, offset], ...], "started_at": the timestamp}.
"""

from __future__ import annotations

import base64
import json
import sys
from typing import Any

from pyspark.sql import SparkSession


def main(jars: str, bootstrap: str, topic: str, other: str, checkpoint: str) -> None:
    """Do all of it."""
    builder = SparkSession.builder.master("local[2]").config("spark.jars", jars)
    for key, value in {
        "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2", "spark.sql.session.timeZone": "UTC",
    }.items():  # fmt: skip
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")

    def reader(read: Any, **options: str) -> Any:
        read = read.format("kafka").option("kafka.bootstrap.servers", bootstrap)
        read = read.option("subscribe", topic).option("includeHeaders", "true")
        return read.options(**{"startingOffsets": "earliest", **options}).load()

    rows = reader(spark.read).orderBy("partition", "offset").collect()
    batch = [
        [
            row["partition"], row["offset"], int(row["timestamp"].timestamp() * 1000 + 0.5),
            _text(row["key"]), _text(row["value"]),
            [[h["key"], _text(h["value"])] for h in row["headers"] or []],
        ]
        for row in rows
    ]  # fmt: skip
    middle = sorted(one[2] for one in batch)[len(batch) // 2]
    later = reader(
        spark.read, startingTimestamp=str(middle), startingOffsetsByTimestampStrategy="latest"
    )
    by_time = [[row["partition"], row["offset"]] for row in later.collect()]
    stream = reader(spark.readStream, maxOffsetsPerTrigger="40")
    writer = stream.select("key", "value", "headers").writeStream.format("kafka")
    writer = writer.option("kafka.bootstrap.servers", bootstrap).option("topic", other)
    writer = writer.option("includeHeaders", "true").option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()
    print(json.dumps({"batch": batch, "by_time": sorted(by_time), "started_at": middle}))
    spark.stop()


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else base64.b64encode(bytes(raw)).decode()


if __name__ == "__main__":
    main(*sys.argv[1:])
