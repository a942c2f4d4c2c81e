"""Fixtures for tests that need a log: pytest finds them by itself where sparklog is installed.

    @pytest.mark.sparklog(topics={"flights": 4}, options={"flush": "none"})
    def test_plain_python(sparklog_log):
        sparklog_log.append("flights", pa.table({"value": ["one"]}))

    def test_a_pipeline(sparklog_spark, sparklog_path):
        run(sparklog_spark, sparklog_path)

    sparklog_path    a log dir that is not made yet, in the test's tmp_path: what a sink is given
    sparklog_log     the same, as an open `sparklog.Log` in mode "rw", with the marker's topics
    sparklog_kafka   that log behind a Kafka endpoint: bootstrap servers, for any Kafka client
    sparklog_spark   a Spark session with two threads and log-backed checkpoints; one a test run
    sparklog_spark_conf    what that session is to have besides: override it in conftest.py
    sparklog_clock   a clock that the test turns; a test that takes it has it in `sparklog_log`

The marker's `topics` is a list of names, or {name: partitions, or topic configs with, if wanted,
a key "partitions"}; `options` are those of `sparklog.open`, `kafka` those of the endpoint.

A module of its own, for pytest imports its plugins in every run: nothing of sparklog, Arrow or
Spark is imported before a test asks for a fixture.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparklog import Log
    from sparklog.clock import ManualClock
    from sparklog.kafka import Endpoint

MARKER = "sparklog"
_MARKER_HELP = (
    "sparklog(topics=None, options=None, kafka=None): what the fixtures sparklog_log and "
    "sparklog_kafka are made with."
)
_ALLOWED = {"topics", "options", "kafka"}
# As a broker does it; and a group's first member doesn't wait for others.
_KAFKA: dict[str, Any] = {"auto.create.topics.enable": True, "group.initial.rebalance.delay.ms": 0}


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line("markers", _MARKER_HELP)


@pytest.fixture
def sparklog_path(tmp_path: Path) -> Iterator[str]:
    """A log dir that is not made yet. What sinks of this process hold open there is closed."""
    path = str(tmp_path / "sparklog")
    yield path
    if "sparklog.sink" in sys.modules:  # it would import Spark
        sys.modules["sparklog.sink"].close(path)


@pytest.fixture
def sparklog_clock() -> "ManualClock":
    """A clock at 2023-11-14T22:13:20Z; `sparklog_clock.advance(ms)` turns it."""
    from sparklog.clock import ManualClock

    return ManualClock()


@pytest.fixture
def sparklog_log(request: pytest.FixtureRequest, sparklog_path: str) -> "Iterator[Log]":
    """An open log at `sparklog_path` with the topics of the marker `sparklog`; closed at the end.

    Other processes, sinks and queries may write and read it at the same time.
    """
    import sparklog

    asked = _asked(request)
    with sparklog.open(
        sparklog_path, mode="rw", options=asked.options, **_clock(request)
    ) as log:
        for name, config in asked.topics.items():
            log.create_topic(name, config.pop("partitions", 1), config)
        yield log


class BootstrapServers(str):
    """`host:port`, what every Kafka client takes for its bootstrap servers; `log` is behind it."""

    __slots__ = ("endpoint", "log")

    endpoint: "Endpoint"
    log: "Log"

    def __new__(cls, endpoint: "Endpoint", log: "Log") -> "BootstrapServers":
        """Name an endpoint's address."""
        made = super().__new__(cls, endpoint.bootstrap_servers)
        made.endpoint, made.log = endpoint, log
        return made


@pytest.fixture
def sparklog_kafka(
    request: pytest.FixtureRequest, sparklog_log: "Log"
) -> Iterator[BootstrapServers]:
    """Bootstrap servers of a Kafka endpoint that serves `sparklog_log`, at a free port of this
    host.

    There is no broker, no Docker and no Java: it is ready in milliseconds. It makes topics that
    clients ask for, as a broker does, unless the marker says `kafka={"auto.create.topics.enable":
    False}`. It ends with the test and waits for no client; close yours, or they try to connect
    again for as long as they live.
    """
    with (
        _kafka()(sparklog_log, options=_KAFKA | _asked(request).kafka, **_clock(request))
        as endpoint
    ):  # fmt: skip
        yield BootstrapServers(endpoint, sparklog_log)


def _kafka() -> "type[Endpoint]":
    """Import the endpoint. The library of Kafka's messages would import hypothesis, to tell it its
    types, which takes twice as long as all the rest."""
    hide = "hypothesis" not in sys.modules
    if hide:
        sys.modules["hypothesis"] = None  # type: ignore[assignment]
    try:
        from sparklog.kafka import Endpoint
    finally:
        if hide:
            del sys.modules["hypothesis"]
    return Endpoint


def _clock(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The clock, where the test takes it."""
    if "sparklog_clock" not in request.fixturenames:
        return {}
    return {"clock": request.getfixturevalue("sparklog_clock")}


@pytest.fixture(scope="session")
def sparklog_spark_conf() -> dict[str, str]:
    """Spark settings to be added to those of `sparklog_spark`: override this in conftest.py."""
    return {}


@pytest.fixture(scope="session")
def sparklog_spark(sparklog_spark_conf: Mapping[str, str]) -> "Iterator[SparkSession]":
    """A Spark session that knows format("sparklog") and keeps checkpoints as logs.

    local[2], without UI, in UTC, two shuffle partitions; Python workers are this interpreter. Where
    a session is active already, that one is enabled and left running. The first session on a
    machine compiles the checkpoint manager, which takes some 10 s.
    """
    import sparklog
    from sparklog.extras import needed

    with needed():
        from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        for key, value in sparklog_spark_conf.items():
            active.conf.set(key, value)
        sparklog.enable(active)
        yield active
        return
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master("local[2]").appName("sparklog-tests")
    for key, value in sparklog.spark_conf({**_QUIET, **sparklog_spark_conf}).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    yield spark
    spark.stop()


_QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stopTimeout": "30s",
}


class _Asked(NamedTuple):
    """What a test's markers say."""

    topics: dict[str, dict[str, Any]]
    options: dict[str, Any]
    kafka: dict[str, Any]


def _asked(request: pytest.FixtureRequest) -> _Asked:
    """What a test's markers say; those nearer to the test win."""
    asked = _Asked({}, {}, {})
    for mark in reversed(list(request.node.iter_markers(MARKER))):
        if mark.args or not mark.kwargs.keys() <= _ALLOWED:
            raise pytest.UsageError(
                f"{request.node.nodeid}: want pytest.mark.sparklog(topics=..., options=..., "
                "kafka=...)"
            )
        wanted = mark.kwargs.get("topics") or {}
        try:
            asked.topics.update(_topics(wanted))
        except (TypeError, ValueError):
            raise pytest.UsageError(
                f"{request.node.nodeid}: topics={wanted!r}: want a name, a list of names, "
                "{name: partitions} or {name: configs}"
            ) from None
        asked.options.update(mark.kwargs.get("options") or {})
        asked.kafka.update(mark.kwargs.get("kafka") or {})
    return asked


def _topics(given: Any) -> dict[str, dict[str, Any]]:
    """{name: configs, and perhaps partitions} of what the marker says in any of its forms."""
    if isinstance(given, str):
        given = [given]
    if not isinstance(given, Mapping):
        given = dict.fromkeys(given, 1)
    if not all(isinstance(name, str) for name in given):
        raise TypeError
    return {
        name: {"partitions": how} if isinstance(how, int) else dict(how)
        for name, how in given.items()
    }
