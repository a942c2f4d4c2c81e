"""Spark Connect: the sink works there with the options that stand in for the unknown query."""

import subprocess
import sys
from pathlib import Path

import pytest

import sparklog
from tests.spark.conftest import environment

pytest.importorskip("grpc_status", reason="Spark Connect needs grpcio-status")
pytestmark = [pytest.mark.spark, pytest.mark.deep]

SCRIPT = """
import sys, sparklog
from pyspark.sql import SparkSession
from sparklog.sink import SegmentSink

log, checkpoint = sys.argv[1:]
spark = SparkSession.builder.remote("local[2]").getOrCreate()

def patiently(start):
    "Spark gives a Python worker ten seconds to come up, however busy the machine is."
    for _ in range(4):
        try:
            return start()
        except Exception as error:
            if "failed to connect back" not in str(error):
                raise
    return start()

def run(sink):
    stream = (
        spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 100).load()
        .selectExpr("cast(value as string) as value")
    )
    writer = (
        stream.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
    )
    query = patiently(writer.start)
    try:
        query.awaitTermination(240)
        return "ok"
    except Exception as error:
        return str(error)

print("without:", run(SegmentSink(log, "t")).replace(chr(10), " "), flush=True)
sink = SegmentSink(log, "t", writerId="mine", checkpointLocation=checkpoint)
for _ in range(3):
    print("with:", run(sink).replace(chr(10), " "), flush=True)
sparklog.register(spark)
rows = spark.read.format("sparklog").option("path", log).option("subscribe", "t").load()
print("rows:", rows.count(), flush=True)
spark.stop()
"""


def test_connect_without_writer(tmp_path: Path) -> None:
    """Connect hides the query's id: refused by the options to give; with them all goes well."""
    path = tmp_path / "log"
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(path), str(tmp_path / "checkpoint")],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=400,
    )
    lines = run.stdout.splitlines()
    assert run.returncode == 0, run.stdout + run.stderr[-5000:]
    without = next(line for line in lines if line.startswith("without:"))
    assert "writerId" in without and "checkpointLocation" in without
    assert [line for line in lines if line.startswith("with:")] == ["with: ok"] * 3, lines
    assert "rows: 400" in lines
    with sparklog.open(path) as log:
        found = log.read("t", columns=["value"]).read_all()["value"].to_pylist()
        # Three runs, and the first one finishes the micro-batch that failed as well.
        assert sorted(int(v) for v in found) == list(range(400))
        assert {row["writer"] for row in log.commits().to_pylist()} - {None} == {"mine"}
