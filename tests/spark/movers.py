"""Both paths: whether Spark's JVM or Python moves a test's bytes, and proof of which did.

The tests of `FILES` run once for each path. A session of its own stands for each: that of Python
has the conf by which a user turns the JVM off. What ran is taken from what sparklog says in its
logs, Python's and the JVM's, and from what Spark counts of its scans; a test whose bytes went the
other way fails, unless it is marked

    @pytest.mark.also_python(why)   on the JVM's path some or all are Python's, by design
    @pytest.mark.one_path           it names its own, or moves nothing: it runs once, unwatched
"""

import contextlib
import logging
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

from sparklog.jvm import gateway
from sparklog.jvm.gateway import JVM_CONF
from tests.depth import IN_PYTHON_EVERY
from tests.spark.jvm_log import JvmLog

JVM, PYTHON = "jvm", "python"
FILES: Final = (
    "test_archive.py", "test_changing_logs.py", "test_datasource.py", "test_sink.py",
    "test_source.py", "test_store_homes.py",
)  # fmt: skip
_IN_JVM, _IN_PYTHON = " in the JVM", " in Python: "
_PIECES: Final = {
    JVM: "partition ranges read in the JVM", PYTHON: "partition ranges read in Python",
}  # fmt: skip


def paths_of(metafunc: pytest.Metafunc) -> Sequence[str]:
    """Return the paths that a test runs on: none if it isn't one of those that run on both.

    Each test runs in the JVM; in Python as well every IN_PYTHON_EVERYth one, by their names.
    """
    where = Path(metafunc.definition.nodeid.partition("::")[0]).name
    if where not in FILES or metafunc.definition.get_closest_marker("one_path"):
        return ()
    if zlib.crc32(metafunc.definition.originalname.encode()) % IN_PYTHON_EVERY:
        return (JVM,)
    return (JVM, PYTHON)


class Movers:
    """A Spark application's sessions, one for each path, and what is said in it."""

    def __init__(self, spark: SparkSession) -> None:
        self.sessions = {JVM: spark, PYTHON: spark.newSession()}
        self.sessions[PYTHON].conf.set(JVM_CONF, "false")
        self._spark, self._log = spark, JvmLog(spark)

    @contextlib.contextmanager
    def watched(self) -> Iterator["Watch"]:
        """Hear what is said meanwhile; `Watch.check` judges it."""
        gateway.LOGGED.clear()  # else a writer's name that another test had is not told again
        python = _Said()
        with self._log.listening() as jvm:
            yield Watch(self._spark, jvm, python)
        python.close()


class Watch:
    """What has been said and counted since it was made."""

    def __init__(self, spark: SparkSession, jvm: JvmLog, python: "_Said") -> None:
        self._spark, self._jvm, self._python = spark, jvm, python
        self._executions = self._store().executionsCount()

    def check(self, path: str, *, also_python: bool) -> None:
        """Fail unless `path` moved the bytes, by all that was said and counted."""
        said, pieces = [*self._jvm.lines(), *self._python.lines], self._pieces()
        evidence = f"path {path}: {said}, {pieces}"
        jvm = any(_IN_JVM in line for line in said) or pieces[JVM]
        python = any(_IN_PYTHON in line for line in said) or pieces[PYTHON]
        assert jvm or python, f"nobody moved anything: mark it one_path? {evidence}"
        if path == PYTHON:
            assert python and not jvm, evidence
        elif not also_python:
            assert jvm and not python, evidence

    def _store(self) -> Any:
        context = self._spark.sparkContext._jsc.sc()
        context.listenerBus().waitUntilEmpty()
        return self._spark._jsparkSession.sharedState().statusStore()

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
        self._logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def close(self) -> None:
        self._logger.removeHandler(self)
        super().close()
