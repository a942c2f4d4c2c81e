"""Spark Connect: the sink works there with the options that stand in for the unknown query."""

import subprocess
import sys
from pathlib import Path

import pytest

import sparklog
from sparklog.checkpoint import verify
from tests.spark.conftest import environment
from tests.spark.test_applications import bare_python

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
for _ in range(2):
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
        env=environment(SPARK_TESTING="1"),  # the server takes any free port
        capture_output=True,
        text=True,
        timeout=400,
    )
    lines = run.stdout.splitlines()
    assert run.returncode == 0, run.stdout + run.stderr[-5000:]
    without = next(line for line in lines if line.startswith("without:"))
    assert "writerId" in without and "checkpointLocation" in without
    assert [line for line in lines if line.startswith("with:")] == ["with: ok"] * 2, lines
    assert "rows: 300" in lines
    with sparklog.open(path) as log:
        found = log.read("t", columns=["value"]).read_all()["value"].to_pylist()
        # Two runs, and the first one finishes the micro-batch that failed as well.
        assert sorted(int(v) for v in found) == list(range(300))
        assert {row["writer"] for row in log.commits().to_pylist()} - {None} == {"mine"}


WITH_JAR = """
import sys, sparklog
from pyspark.sql import SparkSession

log, checkpoint = sys.argv[1:]
builder = SparkSession.builder.remote("local[2]")
for key, value in sparklog.spark_conf().items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
for call in (sparklog.enable, sparklog.register):
    try:
        call(spark)
        print("done:", call.__name__, flush=True)
    except sparklog.InvalidRequestError as error:
        print(f"{call.__name__}:", error, flush=True)
        if call is sparklog.register:
            sys.exit()
rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
writer = rows.selectExpr("cast(value as string) as value").writeStream.format("sparklog")
options = {"path": log, "topic": "t", "checkpointLocation": checkpoint}
query = writer.options(**options).trigger(availableNow=True).start()
query.awaitTermination(240)
read = spark.read.format("sparklog").options(path=log, subscribe="t").load()
print("rows:", read.count(), flush=True)
spark.stop()
"""


def test_a_server_is_started_with_the_settings_and_a_python_that_has_sparklog(
    tmp_path: Path,
) -> None:
    """As the refusals of `enable` and of `register` advise, one after the other."""
    path, checkpoint = tmp_path / "log", tmp_path / "checkpoint"

    def said(python: str) -> str:
        return subprocess.run(
            [sys.executable, "-c", WITH_JAR, str(path), str(checkpoint)],
            env=environment(PYSPARK_PYTHON=python, SPARK_TESTING="1"), capture_output=True,
            text=True, timeout=300, check=True,
        ).stdout  # fmt: skip

    without = said(str(bare_python(tmp_path)))
    assert "start the server with the settings of sparklog.spark_conf()" in without
    assert "register: the Python of the Spark Connect server can't load sparklog: " in without
    assert "Install sparklog for the server's Python (PYSPARK_PYTHON) and start the" in without
    assert not path.exists()
    having = said(sys.executable)
    assert "done: register" in having
    assert "rows: 10" in having
    assert verify(checkpoint).ok
    assert (checkpoint / "sparklog").is_dir()  # written by sparklog's checkpoint manager
