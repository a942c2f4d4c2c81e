"""One stream into three topics, exactly once, though the driver fails right after a commit.

    $ python examples/exactly_once.py
    failed in micro-batch 2, behind its commit: 600 of 1,000 orders are there
    went on with micro-batch 2 (dropped as a replay) to 4
    accepted 800, refused 200, audit 1,000: each order once
    micro-batch 2 in one commit: accepted 160, audit 200, refused 40

A failure between the sink's commit and Spark's own is the worst moment: Spark then runs the whole
micro-batch again. The log knows it by query, number and offsets, and drops it; all topics of a
micro-batch are committed together, so none is ahead of the others.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import sparklog

ORDERS = 1000
FAILS_IN = 2
TOPICS = ("accepted", "refused", "audit")


def main(spark: Any, base: Path) -> None:
    path = str(base / "log")
    orders = [json.dumps({"order": n, "euros": n % 100}) for n in range(ORDERS)]
    with sparklog.open(path, "rw") as log:
        log.create_topic("orders")
        log.append("orders", pa.table({"key": [f"c{n % 37}" for n in range(ORDERS)],
                                       "value": orders}))  # fmt: skip
    try:
        run(spark, path, str(base / "checkpoint"), fails=True)
    except Exception as error:  # Spark's StreamingQueryException, ours in its text
        assert "the power went" in str(error), error
    with sparklog.open(path) as log:
        there = log.read("audit").read_all().num_rows
    print(f"failed in micro-batch {FAILS_IN}, behind its commit: {there} of {ORDERS:,} orders are "
          "there")  # fmt: skip
    first, last = run(spark, path, str(base / "checkpoint"), fails=False)
    print(f"went on with micro-batch {first} (dropped as a replay) to {last}")
    with sparklog.open(path) as log:
        found = {topic: log.read(topic).read_all()["value"].to_pylist() for topic in TOPICS}
        commits = log.commits()
    wanted = sorted(order.encode() for order in orders)
    assert sorted(found["accepted"] + found["refused"]) == sorted(found["audit"]) == wanted
    counts = ", ".join(f"{topic} {len(values):,}" for topic, values in found.items())
    print(f"{counts}: each order once")
    rows = commits.filter(pc.equal(commits["batch"], FAILS_IN)).to_pylist()
    assert len({row["offset"] for row in rows}) == 1
    wrote = {topic: sum(r["end"] - r["first"] for r in rows if r["topic"] == topic)
             for topic in sorted(TOPICS)}  # fmt: skip
    counts = ", ".join(f"{topic} {count}" for topic, count in wrote.items())
    print(f"micro-batch {FAILS_IN} in one commit: {counts}")


def run(spark: Any, path: str, checkpoint: str, *, fails: bool) -> tuple[int, int]:
    """Route all orders that are there, 200 a micro-batch; return its first and last number."""
    from sparklog import sink

    orders = spark.readStream.format("sparklog").option("path", path).option("subscribe", "orders")
    orders = orders.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 200)
    where = "if(get_json_object(cast(value as string), '$.euros') < 80, 'accepted', 'refused')"
    routed = orders.load().selectExpr("key", "value", f"explode(array('audit', {where})) as topic")
    write, numbers = sink.SegmentSink(path), []

    def batch(frame: Any, number: int) -> None:
        numbers.append(number)
        write(frame, number)
        if fails and number == FAILS_IN:
            raise RuntimeError("the power went")

    writer = routed.writeStream.foreachBatch(batch).option("checkpointLocation", checkpoint)
    try:
        writer.trigger(availableNow=True).start().awaitTermination()
    finally:
        sink.close(path)
    return numbers[0], numbers[-1]


if __name__ == "__main__":
    from quickstart import session

    with tempfile.TemporaryDirectory(prefix="sparklog-") as directory:
        main(session("exactly-once"), Path(directory))
