"""Both paths: whether Spark's JVM or Python moves a test's bytes, and proof of which did.

The tests of `FILES` run once for each path. A session of its own stands for each: that of Python
has the conf by which a user turns the JVM off. What ran is taken from what sparklog says in its
logs, Python's and the JVM's, and from what Spark counts of its scans; a test whose bytes went the
other way fails, unless it is marked

    @pytest.mark.also_python(why)   on the JVM's path some are Python's by design
    @pytest.mark.one_path           it names its own, or moves nothing: it runs once, unwatched
"""

import logging
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

from sparklog.jvm import gateway
from sparklog.jvm.gateway import JVM_CONF
from tests.depth import DEPTH

JVM, PYTHON = "jvm", "python"
FILES: Final = (
    "test_archive.py", "test_datasource.py", "test_jvm_faults.py", "test_sink.py", "test_source.py",
    "test_store_homes.py",
)  # fmt: skip
_IN_JVM, _IN_PYTHON = " in the JVM", " in Python: "
_LAYOUT = "%m%n"
_PIECES: Final = {
    JVM: "partition ranges read in the JVM", PYTHON: "partition ranges read in Python",
}  # fmt: skip


def paths_of(metafunc: pytest.Metafunc) -> Sequence[str]:
    """Return the paths that a test runs on: none if it isn't one of those that run on both.

    The small suite runs each test in the JVM, and every other one, by its name, in Python as well.
    """
    where = Path(metafunc.definition.nodeid.partition("::")[0]).name
    if where not in FILES or metafunc.definition.get_closest_marker("one_path"):
        return ()
    if DEPTH == "small" and zlib.crc32(metafunc.definition.originalname.encode()) % 2:
        return (JVM,)
    return (JVM, PYTHON)


class Movers:
    """A Spark application's sessions, one for each path, and what was said in it.

    `log`: a file that the JVM's log is written to, as far as it is sparklog's.
    """

    def __init__(self, spark: SparkSession, log: Path) -> None:
        self.sessions = {JVM: spark, PYTHON: spark.newSession()}
        self.sessions[PYTHON].conf.set(JVM_CONF, "false")
        self._jvm, self._log = _Log4j(spark, log), log
        self._python = _Said()
        self._spark = spark

    def watch(self) -> "Watch":
        """Begin to watch; `Watch.check` says what was seen."""
        return Watch(self._spark, self._log, self._python)

    def close(self) -> None:
        """Listen no more."""
        self._python.close()
        self._jvm.close()


@dataclass
class Watch:
    """What has been said and counted since it was made."""

    spark: SparkSession
    log: Path
    python: "_Said"
    _log_at: int = field(init=False)
    _said_at: int = field(init=False)
    _executions: int = field(init=False)

    def __post_init__(self) -> None:
        gateway.SAID.clear()  # else a writer's name that another test had is not told again
        self._log_at, self._said_at = self.log.stat().st_size, len(self.python.lines)
        self._executions = self._store().executionsCount()

    def check(self, path: str, *, also_python: bool) -> None:
        """Fail unless `path` moved the bytes, by all that was said and counted."""
        said = self.log.read_bytes()[self._log_at :].decode().splitlines()
        said += self.python.lines[self._said_at :]
        pieces = self._pieces()
        evidence = f"path {path}: {said}, {pieces}"
        jvm = any(_IN_JVM in line for line in said) or pieces[JVM]
        python = any(_IN_PYTHON in line for line in said) or pieces[PYTHON]
        assert jvm or python, f"nobody moved anything: mark it one_path? {evidence}"
        if path == PYTHON:
            assert python and not jvm, evidence
        else:
            assert jvm, evidence
            assert also_python or not python, evidence

    def _store(self) -> Any:
        context = self.spark.sparkContext._jsc.sc()
        context.listenerBus().waitUntilEmpty()
        return self.spark._jsparkSession.sharedState().statusStore()

    def _pieces(self) -> dict[str, int]:
        """Offset ranges that scans have read, by path."""
        store, count = self._store(), dict.fromkeys(_PIECES, 0)
        new = store.executionsList(self._executions, 2**31 - 1)
        for each in range(new.size()):
            execution = new.apply(each)
            values = store.executionMetrics(execution.executionId())
            metrics = execution.metrics()
            for slot in range(metrics.size()):
                metric = metrics.apply(slot)
                for path, name in _PIECES.items():
                    value = values.get(metric.accumulatorId())
                    if metric.name() == name and value.isDefined():
                        count[path] += int(value.get().replace(",", ""))
        return count


class _Said(logging.Handler):
    """What Python says by the logger `sparklog`."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []
        self._logger = logging.getLogger("sparklog")
        self._level = self._logger.level
        self._logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def close(self) -> None:
        self._logger.removeHandler(self)
        super().close()


class _Log4j:
    """Has log4j write what the JVM says by the logger `sparklog` to a file."""

    def __init__(self, spark: SparkSession, file: Path) -> None:
        log4j = spark.sparkContext._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
        self._context = log4j.LogManager.getContext(False)
        self._configuration = self._context.getConfiguration()
        layout = log4j.core.layout.PatternLayout.newBuilder().withPattern(_LAYOUT).build()
        named = log4j.core.appender.FileAppender.newBuilder().withFileName(str(file))
        appender = named.setName("sparklog-tests").setLayout(layout).build()
        appender.start()
        level = log4j.Level.INFO
        logger = log4j.core.config.LoggerConfig("sparklog", level, False)
        logger.addAppender(appender, level, None)
        self._configuration.addLogger("sparklog", logger)
        self._context.updateLoggers()

    def close(self) -> None:
        self._configuration.removeLogger("sparklog")
        self._context.updateLoggers()
