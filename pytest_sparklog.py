"""Fixtures for tests that need a log. pytest finds this plugin if sparklog is installed.

    @pytest.mark.sparklog(topics={"flights": 4}, options={"flush": "none"})
    def test_plain_python(sparklog_log):
        sparklog_log.append("flights", pa.table({"value": ["one"]}))

    def test_a_pipeline(sparklog_spark, sparklog_path):
        run(sparklog_spark, sparklog_path)

    sparklog_path    the path of a log dir in the test's tmp_path, which does not exist yet
    sparklog_log     the log at `sparklog_path`, as an open `sparklog.Log` in mode "rw", with the
                     marker's topics
    sparklog_kafka   the bootstrap servers of a Kafka endpoint for `sparklog_log`
    sparklog_spark   a Spark session with two threads and log-backed checkpoints; one per test run
    sparklog_spark_conf    additional settings of that session: override it in conftest.py
    sparklog_clock   a clock that the test advances; `sparklog_log` then uses it

The marker has three arguments. `topics` is a list of names, {name: number of partitions}, or {name:
topic configs}, where the configs can have a key "partitions". `options` are the options of
`sparklog.open`, `kafka` the options of the endpoint.

This is a separate module, because pytest imports its plugins in every run: sparklog, Arrow and
Spark are imported only when a test requests a fixture.
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
    "sparklog(topics=None, options=None, kafka=None): set the topics and options of the fixtures "
    "sparklog_log and sparklog_kafka."
)
_ALLOWED = {"topics", "options", "kafka"}
# Topics are created on first use, as by a broker. A group's first member need not wait for others,
# because a test usually has a single consumer.
_KAFKA: dict[str, Any] = {"auto.create.topics.enable": True, "group.initial.rebalance.delay.ms": 0}


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker `sparklog`, which pytest --strict-markers would reject otherwise."""
    config.addinivalue_line("markers", _MARKER_HELP)


@pytest.fixture
def sparklog_path(tmp_path: Path) -> Iterator[str]:
    """The path of a log dir that does not exist yet.

    At the end of the test, logs that sinks of this process have opened there are closed.
    """
    path = str(tmp_path / "sparklog")
    yield path
    if "sparklog.sink" in sys.modules:  # importing the module would import Spark
        sys.modules["sparklog.sink"].close(path)


@pytest.fixture
def sparklog_clock() -> "ManualClock":
    """A clock that starts at 2023-11-14T22:13:20Z and moves only by `advance(ms)`."""
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
    """The address `host:port` of an endpoint, which Kafka clients accept as bootstrap servers.

    Attributes:
        endpoint: The Kafka endpoint.
        log: The log that the endpoint serves.
    """

    __slots__ = ("endpoint", "log")

    endpoint: "Endpoint"
    log: "Log"

    def __new__(cls, endpoint: "Endpoint", log: "Log") -> "BootstrapServers":
        """Return the address of `endpoint` as text with two attributes."""
        made = super().__new__(cls, endpoint.bootstrap_servers)
        made.endpoint, made.log = endpoint, log
        return made


@pytest.fixture
def sparklog_kafka(
    request: pytest.FixtureRequest, sparklog_log: "Log"
) -> Iterator[BootstrapServers]:
    """The bootstrap servers of a Kafka endpoint that serves `sparklog_log` at a free port.

    The endpoint needs no broker, no Docker and no Java, and is ready in milliseconds. As a broker,
    it creates topics that clients request, unless the marker has
    `kafka={"auto.create.topics.enable": False}`. The endpoint is closed at the end of the test
    without waiting for clients. Close your clients, because open clients keep trying to connect.
    """
    with (
        _kafka()(sparklog_log, options=_KAFKA | _asked(request).kafka, **_clock(request))
        as endpoint
    ):  # fmt: skip
        yield BootstrapServers(endpoint, sparklog_log)


def _kafka() -> "type[Endpoint]":
    """Import the class of the endpoint without importing hypothesis."""
    # The library of Kafka's messages registers its types with hypothesis if that is installed.
    # Importing hypothesis takes twice as long as all other imports of the endpoint.
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
    """Return {"clock": the fixture} if the test uses `sparklog_clock`, else {}."""
    if "sparklog_clock" not in request.fixturenames:
        return {}
    return {"clock": request.getfixturevalue("sparklog_clock")}


@pytest.fixture(scope="session")
def sparklog_spark_conf() -> dict[str, str]:
    """Additional Spark settings for `sparklog_spark`. Override this fixture in conftest.py."""
    return {}


@pytest.fixture(scope="session")
def sparklog_spark(sparklog_spark_conf: Mapping[str, str]) -> "Iterator[SparkSession]":
    """A Spark session with format("sparklog") and log-backed checkpoints.

    The session runs in local[2], without UI, in UTC, with two shuffle partitions; its Python
    workers use this interpreter. If a session is active already, that session is enabled and keeps
    running. The first session on a machine compiles the checkpoint manager, which takes about 10 s.
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
    """The arguments of a test's markers."""

    topics: dict[str, dict[str, Any]]
    options: dict[str, Any]
    kafka: dict[str, Any]


def _asked(request: pytest.FixtureRequest) -> _Asked:
    """Return the merged arguments of a test's markers. The nearest marker takes precedence."""
    asked = _Asked({}, {}, {})
    for mark in reversed(list(request.node.iter_markers(MARKER))):
        if mark.args or not mark.kwargs.keys() <= _ALLOWED:
            raise pytest.UsageError(
                f"{request.node.nodeid}: the marker must be pytest.mark.sparklog(topics=..., "
                "options=..., kafka=...)"
            )
        wanted = mark.kwargs.get("topics") or {}
        try:
            asked.topics.update(_topics(wanted))
        except (TypeError, ValueError):
            raise pytest.UsageError(
                f"{request.node.nodeid}: topics={wanted!r}: expected a name, a list of names, "
                "{name: partitions} or {name: configs}"
            ) from None
        asked.options.update(mark.kwargs.get("options") or {})
        asked.kafka.update(mark.kwargs.get("kafka") or {})
    return asked


def _topics(given: Any) -> dict[str, dict[str, Any]]:
    """Return {name: configs} for the marker's `topics` in any form; see the module's docstring."""
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
