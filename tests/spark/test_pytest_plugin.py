"""The pytest plugin's Spark session: one that is there, and one that it starts."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sparklog.session.setup import MANAGER_KEY
from tests.spark.conftest import QUICK, ROOT

pytestmark = pytest.mark.spark
pytest_plugins = ["pytester"]
PLUGIN = ("-p", "pytest_sparklog", "-p", "no:cacheprovider", "--strict-markers")
CHECKSUMS = "spark.sql.streaming.checkpoint.fileChecksum.enabled"

THERE_AND_BACK = """
from sparklog.sink import SegmentSink

def test_a_pipeline(sparklog_spark, sparklog_path, tmp_path):
    numbers = sparklog_spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 50)
    query = (
        numbers.load().selectExpr("cast(value as string) value")
        .writeStream.foreachBatch(SegmentSink(sparklog_path, "numbers"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True).start()
    )
    assert query.awaitTermination(240)
    log = sparklog_spark.read.format("sparklog").option("path", sparklog_path)
    assert log.option("subscribe", "numbers").load().count() == 50
    assert (tmp_path / "checkpoint" / "sparklog").is_dir()
    assert sparklog_spark.conf.get("spark.sql.shuffle.partitions") == "3"
"""
CONF = """
import pytest

@pytest.fixture(scope="session")
def sparklog_spark_conf():
    return {"spark.sql.shuffle.partitions": "3"}
"""


@pytest.fixture
def as_it_was(spark: SparkSession) -> Iterator[None]:
    """The plugin changes the session that it finds; other tests share it."""
    keys = (MANAGER_KEY, CHECKSUMS, "spark.sql.shuffle.partitions")
    before = {key: spark.conf.get(key, None) for key in keys}
    yield
    for key, value in before.items():
        if value is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, value)


@pytest.mark.usefixtures("as_it_was")
@pytest.mark.deep
def test_a_session_that_is_active(
    spark: SparkSession, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile(THERE_AND_BACK)
    pytester.makeconftest(CONF)
    pytester.runpytest_inprocess(*PLUGIN).assert_outcomes(passed=1)
    assert spark.range(3).count() == 3  # it was left running


@pytest.mark.slow
def test_a_session_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(THERE_AND_BACK)
    (tmp_path / "conftest.py").write_text(CONF)
    given = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "SPARK_SUBMIT_OPTS": QUICK}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *PLUGIN],
        cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, **given, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
