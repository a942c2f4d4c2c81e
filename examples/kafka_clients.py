"""Kafka's own clients beside a streaming query: one log, no broker.

    $ python examples/kafka_clients.py
    Spark wrote 300 readings in 3 micro-batches
    a consumer of Kafka's read 200 of them, then its host died
    Python went on in its group with the other 100; lag now 0
    a producer of Kafka's sent 3 alerts; Spark counted {'heat': 2, 'smoke': 1}

The driver serves the log that its query writes: `Endpoint` is one thread. What the consumer had
committed is an offset of the log itself, so whoever comes next goes on there, in any language.
"""

import tempfile
from pathlib import Path

import pyarrow as pa
from confluent_kafka import Consumer, Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import sparklog
from sparklog import sink
from sparklog.kafka import Endpoint


def write_readings(spark: SparkSession, path: str, base: Path) -> None:
    """Three micro-batches of 100 readings, by a streaming query."""
    for n in range(3):
        rows = spark.range(n * 100, n * 100 + 100).select(F.col("id").cast("string").alias("value"))
        rows.coalesce(1).write.mode("append").text(str(base / "in"))
    query = (
        spark.readStream.schema("value string").option("maxFilesPerTrigger", 1)
        .text(str(base / "in")).writeStream.foreachBatch(sink.SegmentSink(path, "readings"))
        .option("checkpointLocation", str(base / "checkpoint"))
        .trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()


def consume(servers: str, group: str, wanted: int) -> int:
    """Read `wanted` readings as a member of a group, and commit that."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )  # fmt: skip
    consumer.subscribe(["readings"])
    found = consumer.consume(wanted, timeout=30)
    consumer.commit(message=found[-1], asynchronous=False)
    consumer.close()
    return len(found)


def send_alerts(servers: str) -> int:
    """Send alerts, each acknowledged when it is committed to the log."""
    kinds = ["heat", "smoke", "heat"]
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for kind in kinds:
        producer.produce("alerts", key=kind, value=b"now")
    assert producer.flush(30) == 0
    return len(kinds)


def count_alerts(spark: SparkSession, path: str, base: Path) -> dict[str, int]:
    """Count them, in a streaming query."""
    found: dict[str, int] = {}

    def take(batch: DataFrame, _: int) -> None:
        for row in batch.groupBy(F.col("key").cast("string")).count().collect():
            found[row[0]] = found.get(row[0], 0) + row[1]

    alerts = spark.readStream.format("sparklog").option("path", path).option("subscribe", "alerts")
    query = (
        alerts.option("startingOffsets", "earliest").load().writeStream.foreachBatch(take)
        .option("checkpointLocation", str(base / "alerts-checkpoint"))
        .trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    return dict(sorted(found.items()))


def main(spark: SparkSession, base: Path) -> None:
    path = str(base / "log")
    at_once = {"group.initial.rebalance.delay.ms": 0}  # no other members will come
    with sparklog.open(path, "rw") as log, Endpoint(log, options=at_once) as endpoint:
        log.create_topic("alerts", config={"retention.ms": -1})
        servers = endpoint.bootstrap_servers  # what clients on this host are given
        write_readings(spark, path, base)
        end = log.offsets("readings")[0][1]
        batches = set(log.commits()["batch"].drop_null().to_pylist())
        print(f"Spark wrote {end} readings in {len(batches)} micro-batches")
        read = consume(servers, "dashboard", 200)
        print(f"a consumer of Kafka's read {read} of them, then its host died")
        rest: pa.Table = log.read("readings", group="dashboard").read_all()
        lag = log.readers().to_pylist()[0]["lag"]
        print(f"Python went on in its group with the other {rest.num_rows}; lag now {lag}")
        sent = send_alerts(servers)
        counts = count_alerts(spark, path, base)
        print(f"a producer of Kafka's sent {sent} alerts; Spark counted {counts}")
    sink.close(path)


if __name__ == "__main__":
    from quickstart import session

    with tempfile.TemporaryDirectory(prefix="sparklog-") as directory:
        main(session("kafka-clients"), Path(directory))
