"""Examine whether a Spark session can use all of sparklog, and say what to do about each fault."""

import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sparklog.errors import InvalidRequestError
from sparklog.format import kernel
from sparklog.jvm.gateway import CONNECT, NO_JAR, Gateway, find_gateway
from sparklog.session import worker_probe
from sparklog.session.setup import MANAGER, MANAGER_KEY, PREFIX
from sparklog.spark_support import SUPPORTED, check_spark, spark_version

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_VERSION: Final[str] = sys.modules[__name__.partition(".")[0]].__version__
_MANAGER_OBJECT: Final = "sparklog.checkpoint.LogCheckpointFileManager"
_INTERPRETED: Final = (
    "its record kernel is interpreted, up to 60 times slower than compiled: install sparklog from "
    "its wheel, or from source on a host with a C compiler"
)
_INSTALL: Final = (
    "install sparklog {} for that Python on every host, set PYSPARK_PYTHON to a Python that has "
    "it, or ship the package with --py-files or addPyFile and call sparklog.register(spark)"
)
_PACKAGE: Final = (
    "install this package for the Python of the driver and of the workers; sparklog[spark] "
    "contains all packages that Spark needs"
)


@dataclass(frozen=True, slots=True)
class Examined:
    """One line of a doctor's report.

    Attributes:
        subject: A part of the session, such as "jar".
        found: The finding: versions, paths, settings.
        fault: The fault and its remedy; "" if nothing is wrong.

    Examples:
        >>> sparklog.doctor(spark).lines[3]
        Examined(subject='data path', found='the JVM reads and writes the logs', fault='')
    """

    subject: str
    found: str
    fault: str = ""


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """The report of `sparklog.doctor`. `print` shows it as one screen of text.

    Attributes:
        lines: The findings, in the order of the report.

    Examples:
        >>> report = sparklog.doctor(spark)
        >>> [line.fault for line in report.lines if line.fault]
        []
    """

    lines: tuple[Examined, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not any(line.fault for line in self.lines)

    def __str__(self) -> str:
        width = max(len(line.subject) for line in self.lines)
        out = []
        for line in self.lines:
            mark = "!" if line.fault else " "
            out.append(f"{mark} {line.subject.ljust(width)}  {line.found}".rstrip())
            if line.fault:
                out.append(f"  {' ' * width}  -> {line.fault}")
        return "\n".join(out)

    __repr__ = __str__


def examine(spark: "SparkSession", checkpoint: str | None = None) -> DoctorReport:
    """Examine a session; see `sparklog.doctor`."""
    return DoctorReport((*_versions(spark), *_jar(spark), _checkpoints(spark, checkpoint),
                         *_workers(spark)))  # fmt: skip


def _versions(spark: "SparkSession") -> Iterator[Examined]:
    fault = ""
    try:
        check_spark(spark.version, "this session")
    except InvalidRequestError as error:
        fault = str(error)
    parts = [f"Spark {spark.version}"]
    if _is_classic(spark):
        jvm: Any = spark.sparkContext._jvm
        parts += [
            f"Scala {jvm.scala.util.Properties.versionNumberString()}",
            f"Java {jvm.java.lang.System.getProperty('java.version')}",
            f"Hadoop {jvm.org.apache.hadoop.util.VersionInfo.getVersion()}",
        ]
    yield Examined("Spark", ", ".join(parts), fault)
    interpreted = "" if kernel.COMPILED else _INTERPRETED
    found = f"sparklog {_VERSION}, Python {platform.python_version()} ({sys.executable})"
    yield Examined("driver", found, interpreted)


def _is_classic(spark: "SparkSession") -> bool:
    """Return whether this is no Spark Connect session, so that Python can call the JVM."""
    return hasattr(spark, "_jsparkSession")


def _jar(spark: "SparkSession") -> Iterator[Examined]:
    if spark_version(spark.version) < SUPPORTED[0]:
        yield Examined("jar", f"none for Spark {spark.version}")
        return
    gateway = find_gateway(spark)
    if isinstance(gateway, Gateway):
        version = gateway.load("sparklog.Version$")
        source = version.getProtectionDomain().getCodeSource().getLocation().getPath()
        made = gateway.call("sparklog.Version", "sparklog")
        yield Examined("jar", f"{source}, of sparklog {made}")
        yield Examined("data path", "the JVM reads and writes the logs")
    elif gateway is CONNECT:
        yield Examined("jar", f"unknown: {gateway.reason}")
        yield Examined("data path", "in each query's progress: sources[].metrics, sink.metrics")
    elif gateway is NO_JAR:
        yield Examined("jar", "not loaded", gateway.reason)
        yield Examined("data path", "Python reads and writes the logs, because there is no jar")
    else:
        # The user's own choice (the conf for option jvm), or a jar of another version.
        chosen = gateway.level == NO_JAR.level
        yield Examined("jar", "not used", "" if chosen else gateway.reason)
        yield Examined("data path", f"Python reads and writes the logs: {gateway.reason}")


def _checkpoints(spark: "SparkSession", location: str | None) -> Examined:
    manager = spark.conf.get(MANAGER_KEY, None)
    where = "" if location is None else f"{location}: "
    if manager != MANAGER:
        name = "its own manager" if manager is None else f"{manager} ({MANAGER_KEY})"
        return Examined("checkpoints", f"{where}files, written by Spark with {name}")
    gateway = find_gateway(spark)
    if location is None or not isinstance(gateway, Gateway):
        return Examined("checkpoints", f"{where}log-backed on a local disk, elsewhere in runs")
    kept = str(gateway.call(_MANAGER_OBJECT, "describe", location))
    if ", because " not in kept:
        return Examined("checkpoints", f"{where}{kept}")
    if kept.startswith("refused"):
        fault = (
            f"use another checkpointLocation, or set {PREFIX}store=disk to leave the checkpoint to "
            "Spark"
        )
    else:
        change = f"do not set {PREFIX}store=disk"
        if f"{PREFIX}store" not in kept:
            change = f"stop the query, and run `sparklog checkpoint import {location}`"
        fault = (
            f"to store it as a log, {change}; to keep files without this finding, use "
            "enable(spark, checkpoints=False)"
        )
    return Examined("checkpoints", f"{where}{kept}", fault)


def _workers(spark: "SparkSession") -> Iterator[Examined]:
    from pyspark import cloudpickle

    pickler: Any = cloudpickle
    pickler.register_pickle_by_value(worker_probe)
    try:
        tasks = spark.range(0, 8, 1, 8)
        rows = tasks.mapInArrow(worker_probe.probe, worker_probe.COLUMNS).distinct().collect()
    except Exception as error:  # noqa: BLE001 - whatever Spark's workers or py4j raise
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        text = next((line for line in reversed(lines) if "Error: " in line), lines[-1])
        python = getattr(spark.sparkContext, "pythonExec", "") if _is_classic(spark) else ""
        remedy = _PACKAGE if "PACKAGE_NOT_INSTALLED" in text else _INSTALL.format(_VERSION)
        yield Examined(
            "workers", f"{python or 'Python'} can't run functions: {text[:300]}", remedy
        )
        return
    finally:
        pickler.unregister_pickle_by_value(worker_probe)
    for row in sorted(rows):
        found = f"Python {row.version} on {row.host} ({row.python})"
        if row.sparklog:
            found += f", sparklog {row.sparklog}, {row.kernel} kernel"
        yield Examined("workers", found, _worker_fault(row))


def _worker_fault(row: Any) -> str:
    if not row.sparklog:
        return f"it can't import sparklog ({row.kernel}): {_INSTALL.format(_VERSION)}"
    if row.sparklog != _VERSION:
        return f"the driver has sparklog {_VERSION}: {_INSTALL.format(_VERSION)}"
    return _INTERPRETED if row.kernel == "interpreted" else ""
