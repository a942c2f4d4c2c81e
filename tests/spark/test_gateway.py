"""The way from a session to the jar, by each way that a jar comes to a session."""

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sparklog.jvm import gateway as gateways
from sparklog.jvm.gateway import (
    CONNECT,
    NO_JAR,
    NOT_WANTED,
    Gateway,
    Obstacle,
    find_gateway,
    gateway,
)
from sparklog.jvm.plans import PLAN_VERSION
from sparklog.spark_support import jar_version
from tests.spark.conftest import environment

APPLICATION = Path(__file__).with_name("ways_to_the_jar.py")
WAYS = {  # whether the session has the jar from its start on
    "jars": True, "class path": True, "enable": False, "second context": False, "add jar": False,
}  # fmt: skip


@pytest.mark.spark
def test_in_a_session_that_has_the_jar(spark: SparkSession) -> None:
    for session in (spark, spark.newSession()):
        found = gateway(session)
        assert found is not None
        assert found.call("sparklog.Version", "plans") == PLAN_VERSION
        assert gateways.obstacle(session) is None
        assert gateway(session) is found  # it isn't looked up again


@pytest.mark.spark
@pytest.mark.parametrize("made", ["4.0.4", "4.1.3", "4.2.0", "4.3.1", "4.4.0"])
def test_the_jar_refuses_a_spark_that_it_was_not_made_for(spark: SparkSession, made: str) -> None:
    """With --jars alone, Python does not see the jar before Spark loads its classes."""
    jar = gateway(spark)
    assert jar is not None
    for running in ("4.0.0", "4.1.4", "4.2.1", "4.3.0", "4.4.1", "4.0.2-vendor-1"):
        why = jar.call("sparklog.Version", "mismatch", made, running)
        assert (why is None) == (jar_version(made) == jar_version(running))
        assert why is None or f"was made for Spark {made}, and this is Spark {running}" in why
    jar.call("sparklog.Version", "check")


@pytest.mark.spark
def test_option_and_connect(spark: SparkSession) -> None:
    assert gateways.obstacle(spark, wanted=False) is NOT_WANTED
    assert gateway(spark, wanted=False) is None
    assert find_gateway(object()) is CONNECT  # type: ignore[arg-type]


SELDOM = ("class path", "add jar", "jars")  # test_applications has the last, on a cluster


@pytest.mark.spark
@pytest.mark.parametrize(
    "way",
    [
        pytest.param(way, marks=pytest.mark.slow if way in SELDOM else pytest.mark.deep)
        for way in WAYS
    ],
)
def test_each_way_that_a_jar_comes(way: str, tmp_path: Path) -> None:
    """Main session, a new one, and those that foreachBatch has; executors of their own; queries
    that other threads start."""
    command = [sys.executable, str(APPLICATION), way, str(tmp_path)]
    done = subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout.splitlines()[-1])
    want = ["Gateway"] * (3 if way == "add jar" else 5)  # two sessions, and the queries
    assert said.pop() == "jvm jvm 100"  # format("sparklog"), too
    assert said == (want if WAYS[way] else [NO_JAR.reason, *want])


class Version:
    """What `sparklog.Version` of some jar answers."""

    def __init__(self, plans: int, sparklog: str | None, spark: str | None) -> None:
        self._answers = {"plans": plans, "sparklog": sparklog, "spark": spark}

    def __getattr__(self, name: str) -> Any:
        return lambda: self._answers[name]

    def getField(self, _: str) -> Any:
        return self

    def get(self, _: None) -> Any:
        return self


class Session:
    """A session's JVM side."""

    def version(self) -> str:
        return "4.3.1"


@pytest.mark.parametrize(
    ("version", "says"),
    [
        (Version(PLAN_VERSION, "0.1.0", "4.3.0"), None),
        (Version(PLAN_VERSION, None, None), None),  # put together by hand
        (Version(PLAN_VERSION + 1, "9.9.9", "4.3.0"), "the jar was made by sparklog 9.9.9, with"),
        (Version(PLAN_VERSION, "0.1.0", "4.4.0"), "made for Spark 4.4.0, this is Spark 4.3.1"),
    ],
)
def test_a_jar_of_another_version(version: Version, says: str | None) -> None:
    found = gateways._found(Session(), lambda _: version)
    if says is None:
        assert isinstance(found, Gateway)
    else:
        assert isinstance(found, Obstacle)
        assert says in found.reason
        assert "sparklog doctor --spark-conf --jar FILE" in found.reason
        assert found.level == logging.WARNING


def test_it_is_said_once_a_query(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sparklog")
    for query in ("a", "b", "a", "a"):
        gateways.log_data_path("writes t", NO_JAR, query=query)
    gateways.log_data_path("writes t", None, query="a")
    gateways.log_data_path("writes t", None, query="a")
    said = [record.message for record in caplog.records]
    assert said == [
        f"a: writes t in Python: {NO_JAR.reason}",
        f"b: writes t in Python: {NO_JAR.reason}",
        "a: writes t in the JVM",
    ]
