"""Spark's Declarative Pipelines: `spark-pipelines run` with topics as source and as sink."""

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog.checkpoint import verify
from sparklog.jvm.jar import jar
from sparklog.session.setup import MANAGER, MANAGER_KEY
from tests.spark.conftest import environment
from tests.spark.versions import since

pytest.importorskip("grpc_status", reason="Spark Connect needs grpcio-status")
pytest.importorskip("yaml", reason="spark-pipelines needs PyYAML")
pytestmark = [pytest.mark.spark, pytest.mark.deep, since((4, 1), "Declarative Pipelines")]

SPEC = """
name: flights
storage: {root}/storage
libraries:
  - glob:
      include: transformations/**
"""
DEFINITIONS = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()
LOG = "{log}"

@dp.table
def delays():
    flights = spark.readStream.format("sparklog").option("path", LOG).option("subscribe", "flights")
    flights = flights.option("startingOffsets", "earliest").load()
    return flights.selectExpr("string(key) key", "int(string(value)) delay")

dp.create_sink("late", format="sparklog", options={{"path": LOG, "topic": "late"}})

@dp.append_flow(target="late")
def late_flights():
    late = spark.readStream.table("delays").where("delay >= 60")
    return late.selectExpr("key", "string(delay) value")
"""

LOGGERS = """
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
logger.sparklog.name = sparklog
logger.sparklog.level = info
"""


def test_a_table_and_a_sink(tmp_path: Path) -> None:
    """The catalog must outlive the run, so that the next run continues the table: Hive's does."""
    log, loggers = tmp_path / "log", tmp_path / "log4j2.properties"
    (tmp_path / "conf").mkdir()
    (tmp_path / "transformations").mkdir()
    (tmp_path / "spark-pipeline.yml").write_text(SPEC.format(root=tmp_path.as_uri()))
    (tmp_path / "transformations" / "flights.py").write_text(DEFINITIONS.format(log=log))
    conf = {
        "spark.sql.catalogImplementation": "hive",
        "spark.jars": jar(),
        MANAGER_KEY: MANAGER,
        "spark.ui.enabled": "false",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={loggers.as_uri()}",
    }
    loggers.write_text(LOGGERS)
    lines = [f"{key} {value}\n" for key, value in conf.items()]
    (tmp_path / "conf" / "spark-defaults.conf").write_text("".join(lines))
    found = []
    for delays in (["10", "60"], ["70", "20"]):
        with sparklog.open(log, mode="rw") as opened:
            opened.create_topic("flights", if_not_exists=True)
            opened.append("flights", pa.table({"key": ["N14228"] * 2, "value": delays}))
        done = subprocess.run(
            [str(Path(sys.executable).with_name("spark-pipelines")), "run"],
            env=environment(SPARK_CONF_DIR=str(tmp_path / "conf"), SPARK_TESTING="1"), cwd=tmp_path,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-8000:]
        assert f"reads flights of {log} in the JVM" in done.stdout
        assert f"writes late of {log} in the JVM" in done.stdout
        with sparklog.open(log) as opened:
            values = opened.read("late", columns=["value"]).read_all()["value"].to_pylist()
        found.append(sorted(bytes(value).decode() for value in values))
    assert found == [["60"], ["60", "70"]]
    checkpoints = list(tmp_path.glob("storage/_checkpoints/**/sparklog"))
    assert len(checkpoints) == 2
    assert all(verify(checkpoint.parent).ok for checkpoint in checkpoints)
