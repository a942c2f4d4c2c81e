"""A bug found late: fork the query to just before it, run the mended code, compare the two.

    $ python examples/replay_after_a_bug.py
    the first reading in Fahrenheit has offset 200: micro-batches 0 to 2 are still right
    as it ran:  hall 21.9, oven 212.0, roof 30.9
    mended:     hall 21.9, oven 100.0, roof 30.9
    differs: oven 212.0 -> 100.0
    the fork shares 9 records with the original, which is as it was

The query keeps the highest temperature of each sensor. `checkpoint.fork` makes a second checkpoint
and a second log, of hard links, that go on behind the last micro-batch which read none of the bad
rows; the original may run on meanwhile. Had the result been wanted in place: `checkpoint.reset`.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa

import sparklog
from sparklog import checkpoint

READINGS = 360
CHANGED_AT = 200  # from here on the oven reports in Fahrenheit
CELSIUS = "double(get_json_object(cast(value as string), '$.t'))"
UNIT = "get_json_object(cast(value as string), '$.unit')"
MENDED = f"if({UNIT} = 'F', ({CELSIUS} - 32) / 1.8, {CELSIUS})"


def reading(n: int) -> str:
    sensor = ("hall", "roof", "oven")[n % 3]
    in_celsius = {"hall": 20 + n % 20 / 10, "roof": n % 31 + 0.9, "oven": 100.0}[sensor]
    if sensor == "oven" and n >= CHANGED_AT:
        return json.dumps({"sensor": sensor, "t": in_celsius * 1.8 + 32, "unit": "F"})
    return json.dumps({"sensor": sensor, "t": in_celsius, "unit": "C"})


def main(spark: Any, base: Path) -> None:
    source, out, fixed = (str(base / name) for name in ("source", "out", "out-fixed"))
    readings = [reading(n) for n in range(READINGS)]
    with sparklog.open(source, "rw") as log:
        log.create_topic("readings")
        log.append("readings", pa.table({"value": readings}))
    run(spark, source, out, base / "checkpoint", CELSIUS)
    before = highest(out)

    with sparklog.open(source) as log:  # where does it begin? the source still knows
        table = log.read("readings", columns=["offset", "value"]).read_all()
    first = next(row["offset"] for row in table.to_pylist() if b'"F"' in row["value"])
    made = checkpoint.fork(
        base / "checkpoint", base / "fixed", log=out, new_log=fixed,
        to={"offsets": {"readings": {"0": first}}},
    )  # fmt: skip
    print(f"the first reading in Fahrenheit has offset {first}: micro-batches 0 to {made.batch} "
          "are still right")  # fmt: skip
    with sparklog.open(fixed) as log:
        shared = log.offsets("highest")[0][1]
    run(spark, source, fixed, base / "fixed", MENDED)

    after = highest(fixed)
    print(f"as it ran:  {', '.join(f'{s} {t:.1f}' for s, t in before.items())}")
    print(f"mended:     {', '.join(f'{s} {t:.1f}' for s, t in after.items())}")
    for sensor in before:
        if before[sensor] != after[sensor]:
            print(f"differs: {sensor} {before[sensor]:.1f} -> {after[sensor]:.1f}")
    assert highest(out) == before
    print(f"the fork shares {shared} records with the original, which is as it was")


def run(spark: Any, source: str, out: str, checkpoint: Path, celsius: str) -> None:
    """The highest temperature of each sensor, 60 readings a micro-batch."""
    from sparklog import sink

    rows = spark.readStream.format("sparklog").option("path", source)
    rows = rows.option("subscribe", "readings").option("startingOffsets", "earliest")
    rows = rows.option("maxOffsetsPerTrigger", 60).load()
    sensor = "get_json_object(cast(value as string), '$.sensor') as key"
    most = rows.selectExpr(sensor, f"{celsius} as t").groupBy("key").agg({"t": "max"})
    made = most.selectExpr("key", "cast(`max(t)` as string) as value")
    writer = made.writeStream.outputMode("update").foreachBatch(sink.SegmentSink(out, "highest"))
    try:
        writer.option("checkpointLocation", str(checkpoint)).trigger(
            availableNow=True
        ).start().awaitTermination()
    finally:
        sink.close(out)


def highest(path: str) -> dict[str, float]:
    """What the topic says of each sensor last."""
    with sparklog.open(path) as log:
        rows = log.read("highest", columns=["key", "value"]).read_all().to_pylist()
    return dict(sorted((row["key"].decode(), float(row["value"])) for row in rows))


if __name__ == "__main__":
    from quickstart import session

    with tempfile.TemporaryDirectory(prefix="sparklog-") as directory:
        main(session("replay"), Path(directory))
