"""The demo's pipeline: write visits to a shop into a tiered topic, and count the visits per page.

    python pipeline.py [--master URL] [--rows-per-second N] [--copy] LOG CHECKPOINT

The first query appends N rows per second to the topic `visits`. The second query appends each
change of a page's count to the topic `counts`. This topic is compacted, so that the latest count of
each page remains. Both queries have log-backed checkpoints below CHECKPOINT. The pipeline runs
until SIGTERM or SIGINT, and continues when it is started again.

With --copy, the second query copies each visit to the topic `copies` instead. Use this option with
hosts that share no disk; LOG is then a URL. Executors write the state of a count into CHECKPOINT,
so all of them would need this directory. A query without state needs it only in the driver.
"""

import argparse
import signal
import sys
import threading
from typing import Any

from pyspark.sql import SparkSession

import sparklog
from sparklog import sink

VISITS = {
    "segment.bytes": 1 << 20,
    "retention.ms": -1,
    "retention.bytes": 512 << 20,
}
TIERED = {"remote.storage.enable": True, "local.retention.bytes": 4 << 20}
COUNTS = {"cleanup.policy": "compact", "segment.bytes": 1 << 20, "segment.idle.ms": 60_000}
EVERY = "2 seconds"
PAGES = 50


def session(master: str) -> SparkSession:
    builder = SparkSession.builder.appName("sparklog-demo").master(master)
    settings = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.task.maxFailures": "20",  # users of the demo may kill workers
        # Spark matches the traceback of a stopped query by recursion, which exceeds 1 MiB of stack.
        "spark.driver.extraJavaOptions": "-Xss8m",
    }
    for key, value in sparklog.spark_conf(settings, daemon=True).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def visits(spark: SparkSession, log: str, checkpoint: str, rows_per_second: int) -> Any:
    rows = spark.readStream.format("rate").option("rowsPerSecond", rows_per_second).load()
    made = rows.selectExpr(
        "concat('visitor-', value % 1000) as key",
        f"to_json(struct(value as visit, concat('/page/', value % {PAGES}) as page,"
        " sha1(cast(value as string)) as session)) as value",
        "timestamp",
    )
    writer = made.writeStream.foreachBatch(sink.SegmentSink(log, "visits"))
    return start(writer, f"{checkpoint}/visits")


def counts(spark: SparkSession, log: str, checkpoint: str) -> Any:
    rows = read_visits(spark, log)
    page = "get_json_object(cast(value as string), '$.page') as page"
    made = rows.selectExpr(page).groupBy("page").count()
    made = made.selectExpr("page as key", "cast(count as string) as value")
    writer = made.writeStream.outputMode("update").foreachBatch(sink.SegmentSink(log, "counts"))
    return start(writer, f"{checkpoint}/counts")


def copies(spark: SparkSession, log: str, checkpoint: str) -> Any:
    made = read_visits(spark, log).select("key", "value", "timestamp")
    writer = made.writeStream.foreachBatch(sink.SegmentSink(log, "copies"))
    return start(writer, f"{checkpoint}/copies")


def read_visits(spark: SparkSession, log: str) -> Any:
    rows = spark.readStream.format("sparklog").option("path", log).option("subscribe", "visits")
    return rows.option("startingOffsets", "earliest").load()


def start(writer: Any, checkpoint: str) -> Any:
    return writer.option("checkpointLocation", checkpoint).trigger(processingTime=EVERY).start()


def create_topics(path: str, copy: bool) -> None:
    config = VISITS if copy else VISITS | TIERED
    with sparklog.open(path, "rw") as log:
        log.create_topic("visits", partitions=2, config=config, if_not_exists=True)
        if copy:
            log.create_topic("copies", partitions=2, config=config, if_not_exists=True)
        else:
            log.create_topic("counts", config=COUNTS, if_not_exists=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("log")
    parser.add_argument("checkpoint")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--rows-per-second", type=int, default=5000)
    parser.add_argument("--copy", action="store_true")
    given = parser.parse_args()
    stop = threading.Event()
    create_topics(given.log, given.copy)
    spark = session(given.master)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    queries = [
        visits(spark, given.log, given.checkpoint, given.rows_per_second),
        (copies if given.copy else counts)(spark, given.log, given.checkpoint),
    ]
    print("the pipeline runs", flush=True)
    while not stop.wait(1) and all(query.isActive for query in queries):
        pass
    errors = [str(query.exception()) for query in queries if query.exception() is not None]
    for query in queries:
        query.stop()
    sink.close()
    spark.stop()
    print("\n".join(errors) or "the pipeline has stopped", flush=True)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
