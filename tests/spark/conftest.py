"""One Spark session for all tests here; a log dir and a checkpoint for each."""

import logging
import os
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from sparklog.jvm.jar import jar
from sparklog.sink.segment_sink import RUNS
from tests.paths import ROOT
from tests.spark.jvm import QUICK, quick
from tests.spark.movers import JVM, Movers, paths_of


def environment(**more: str) -> dict[str, str]:
    """The environment of a Spark application in a process of its own, whose JVMs start quickly."""
    python_path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return {
        **os.environ,
        "PYTHONPATH": python_path.rstrip(os.pathsep),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LAUNCHER_OPTS": QUICK,  # of the JVM that makes up the command line
        "SPARK_SUBMIT_OPTS": quick(),  # of the driver
        **more,
    }


def build_session(master: str = "local[2]", **conf: str) -> SparkSession:
    """Start Spark with this interpreter as its workers', and what makes tests quick."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LAUNCHER_OPTS"] = QUICK
    builder = (
        SparkSession.builder.master(master)
        .appName("sparklog-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.extraJavaOptions", quick())
        .config("spark.driver.maxResultSize", "8m")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.python.filterPushdown.enabled", "true")
        .config("spark.sql.streaming.stopTimeout", "240s")
        .config("spark.jars", jar())  # the checkpoint manager; a test that wants it sets its class
    )
    for key, value in conf.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run on both paths what is to run on both; see movers.py."""
    if "moved_by" in metafunc.fixturenames and (paths := paths_of(metafunc)):
        metafunc.parametrize("moved_by", paths, indirect=True)


PASSED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let fixtures know whether the test failed."""
    report = yield
    if call.when == "call":
        item.stash[PASSED] = report.passed
    return report


@pytest.fixture(scope="session")
def movers() -> Iterator[Movers]:
    """The Spark application of all tests here."""
    session = build_session()
    yield Movers(session)
    session.stop()


@pytest.fixture
def moved_by(
    request: pytest.FixtureRequest, movers: Movers, caplog: pytest.LogCaptureFixture
) -> Iterator[str]:
    """The path of this test; at its end it is looked which one it took."""
    path: str | None = getattr(request, "param", None)
    if path is None:
        yield JVM
        return
    RUNS.clear()  # as in a new process: this test's log may have the inode of another one's
    with movers.watched() as watch, caplog.at_level(logging.INFO, "sparklog"):
        yield path
        if request.node.stash.get(PASSED, False):
            watch.check(path, also_python=bool(request.node.get_closest_marker("also_python")))


@pytest.fixture
def spark(movers: Movers, moved_by: str) -> SparkSession:
    """A session whose bytes are moved by the test's path."""
    return movers.sessions[moved_by]


@pytest.fixture
def path(tmp_path: Path) -> Iterator[str]:
    """A log dir that doesn't exist yet; what this process has open there is closed at the end."""
    from sparklog import sink

    log = str(tmp_path / "log")
    yield log
    sink.close(log)


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")


@pytest.fixture
def numbers(spark: SparkSession) -> Callable[..., DataFrame]:
    """A stream of `rows` a micro-batch: value = their number, key = number % 10, as strings."""

    def stream(rows: int = 100, partitions: int = 2) -> DataFrame:
        return (
            spark.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", rows)
            .option("numPartitions", partitions)
            .load()
            .selectExpr(
                "cast(value as string) as value", "cast(value % 10 as string) as key", "timestamp"
            )
        )

    return stream


@pytest.fixture
def run_batches() -> Callable[..., int]:
    """Run a query, from its writer, for `count` micro-batches; return the last one's number.

    One start each: the rate source gives one micro-batch to the trigger AvailableNow, and a query
    that is stopped in the midst of a batch would end in an error now and then.
    """

    def run(writer: Any, count: int, timeout_s: float = 120) -> int:
        last = -1
        for _ in range(count):
            query: StreamingQuery = writer.trigger(availableNow=True).start()
            assert query.awaitTermination(timeout_s), "the micro-batch did not finish in time"
            assert query.lastProgress is not None
            last = int(query.lastProgress["batchId"])
        return last

    return run
