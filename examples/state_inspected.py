"""What is in a query's state, and how it came there: as Arrow, and as rows of Spark.

    $ python examples/state_inspected.py
    state after micro-batch 3: {'EWR': 134, 'JFK': 133, 'LGA': 133}
    JFK, micro-batch by micro-batch: [33, 67, 100, 133]
    by Spark: [33, 67, 100, 133]
    one can go back to micro-batches [0, 1, 2, 3]

Of any checkpoint, Spark's own or a log, beside the running query. Followed as a stream, the changes
are the changelog of a table that nobody had to write out.
"""

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa

import sparklog
from sparklog import checkpoint

AIRPORTS = ("EWR", "JFK", "LGA")


def main(spark: Any, base: Path) -> None:
    path, state = str(base / "log"), base / "checkpoint"
    with sparklog.open(path, "rw") as log:
        log.create_topic("flights")
        log.append("flights", pa.table({"value": [AIRPORTS[n % 3] for n in range(400)]}))
    count(spark, path, state)

    # As Arrow, without Spark: one row for each key that a micro-batch changed.
    changes = checkpoint.changes(state, operator=0).read_all()
    rows = sorted(changes.to_pylist(), key=lambda row: row["batch"])
    now = {row["key"]["airport"]: row["value"]["count"] for row in rows}
    print(f"state after micro-batch {rows[-1]['batch']}: {dict(sorted(now.items()))}")
    jfk = [row["value"]["count"] for row in rows if row["key"]["airport"] == "JFK"]
    print(f"JFK, micro-batch by micro-batch: {jfk}")

    # The same by Spark, where it can be joined, streamed, written elsewhere.
    reader = spark.read.format("sparklog").option("stateOperator", 0)
    found = reader.load(str(state)).where("key.airport = 'JFK'").orderBy("batch")
    by_spark = [row.value["count"] for row in found.collect()]
    print(f"by Spark: {by_spark}")
    assert by_spark == jfk

    # And what the checkpoint is good for.
    batches = [row.batch for row in checkpoint.history(state).batches if row.obstacle is None]
    print(f"one can go back to micro-batches {batches}")


def count(spark: Any, path: str, state: Path) -> None:
    """A running count by airport, 100 flights a micro-batch; nobody takes the result."""
    rows = spark.readStream.format("sparklog").option("path", path).option("subscribe", "flights")
    rows = rows.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 100).load()
    counts = rows.selectExpr("cast(value as string) as airport").groupBy("airport").count()
    writer = counts.writeStream.outputMode("update").format("noop")
    writer = writer.option("checkpointLocation", str(state)).trigger(availableNow=True)
    writer.start().awaitTermination()


if __name__ == "__main__":
    from quickstart import session

    with tempfile.TemporaryDirectory(prefix="sparklog-") as directory:
        main(session("state"), Path(directory))
