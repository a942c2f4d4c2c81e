"""Checkpoints where no log dir may be: in runs, or kept by Spark, and the user is told."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sparklog import doctor
from sparklog.checkpoint import export, history, import_, reset, verify
from sparklog.session.setup import MANAGER
from tests.state.operators import Output, run, session

pytestmark = pytest.mark.spark

LOGGER = "sparklog.checkpoint.LogCheckpointFileManager"
STORE = "spark.sparklog.checkpoint.store"


@contextmanager
def logged(spark: SparkSession) -> Iterator[Any]:
    """What the manager logs meanwhile, as a java.io.StringWriter."""
    jvm: Any = spark._jvm  # type: ignore[attr-defined]
    core = jvm.org.apache.logging.log4j.core
    written = jvm.java.io.StringWriter()
    layout = core.layout.PatternLayout.createDefaultLayout()
    appender = core.appender.WriterAppender.createAppender(
        layout, None, written, "test", False, True
    )
    appender.start()
    core.config.Configurator.setLevel(LOGGER, jvm.org.apache.logging.log4j.Level.WARN)
    logger = jvm.org.apache.logging.log4j.LogManager.getLogger(LOGGER)
    logger.addAppender(appender)
    try:
        yield written
    finally:
        logger.removeAppender(appender)


@pytest.fixture
def elsewhere(spark: SparkSession, tmp_path: Path) -> Iterator[Path]:
    """The directory behind a file system that Hadoop knows under a scheme of its own."""
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()  # type: ignore[union-attr]
    key = "fs.viewfs.mounttable.default.link./elsewhere"
    (tmp_path / "elsewhere").mkdir()
    hadoop.set(key, (tmp_path / "elsewhere").as_uri())
    yield tmp_path / "elsewhere" / "ckpt"
    hadoop.unset(key)


@pytest.mark.deep
def test_another_file_system(spark: SparkSession, elsewhere: Path) -> None:
    """One without a known atomic creation: refused by name, unless the checkpoint is Spark's."""
    location = "viewfs:/elsewhere/ckpt"
    output: Output = {}
    ours = session(spark, "hdfs", MANAGER)
    with pytest.raises(Exception, match="it is on the file system viewfs") as refused:
        run(ours, "aggregation", location, output, 1)
    assert f"set {STORE} to disk" in str(refused.value)
    assert not output
    assert not elsewhere.exists() or not list(elsewhere.rglob("*"))

    ours.conf.set(STORE, "disk")
    with logged(spark) as log:
        run(ours, "aggregation", location, output, 1)
    why = f"as files, because it is on the file system viewfs, and {STORE} is disk"
    assert log.toString().count(why) == 1
    ours.conf.unset(STORE)
    with logged(spark) as log:
        run(ours, "aggregation", location, output, 3)
    assert log.toString().count("because Spark itself began the checkpoint") == 1
    assert location in log.toString()
    assert set(output) >= {0, 1, 2, 3}
    assert output[3]
    assert not (elsewhere / "sparklog").exists()
    assert {str(n) for n in range(4)} <= {p.name for p in (elsewhere / "offsets").iterdir()}
    assert {row.batch for row in history(elsewhere).batches} >= {0, 1, 2, 3}
    assert verify(elsewhere).ok


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Path]:
    """A directory whose file system isn't this host's own, as far as its name tells."""
    if shutil.which("bindfs") is None:
        pytest.skip("bindfs isn't installed: `scripts/program bindfs` installs it")
    at, behind = tmp_path / "mount", tmp_path / "behind"
    at.mkdir()
    behind.mkdir()
    command = ["bindfs", "--no-allow-other", str(behind), str(at)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no FUSE here: {mounted.stderr.strip()}")
    yield at
    unmount = shutil.which("fusermount3") or shutil.which("fusermount")
    # Lazily: Spark's maintenance thread may look through the state for a moment yet.
    subprocess.run([unmount, "-uz", at] if unmount else ["umount", "-l", at], check=True)


@pytest.mark.deep
def test_a_mounted_file_system(
    spark: SparkSession, mount: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Network mounts: neither locks nor fsync can be relied on, so the checkpoint is in runs."""
    monkeypatch.setattr("sparklog.checkpoint.running_query.QUIET_MS", 0)  # it has just stopped
    output: Output = {}
    ours, path = session(spark, "hdfs", MANAGER), mount / "ckpt"

    def kept() -> str:
        (found,) = (e for e in doctor(ours, str(path)).lines if e.subject == "checkpoints")
        return f"{found.found}; {found.fault}"

    assert kept() == f"{path}: in runs; "
    for until in (1, 3):
        run(ours, "aggregation", str(path), output, until)
    assert set(output) >= {0, 1, 2, 3}
    assert kept() == f"{path}: in runs; "
    assert (path / "sparklog" / "home").exists()
    assert not (path / "offsets").exists()
    assert {row.batch for row in history(path).batches} >= {0, 1, 2, 3}
    assert verify(path).ok
    reset(path, to=1)
    again: Output = {}
    run(ours, "aggregation", str(path), again, 3)
    assert again[2] == output[2]
    assert min(again) == 2
    export(path)
    assert {row.batch for row in history(path).batches} >= {0, 1, 2, 3}
    assert (path / "offsets").exists()
    assert not (path / "sparklog" / "home").exists()
    assert "Spark itself began the checkpoint; to store it as a log, stop the query" in kept()
    spark.conf.set(STORE, "disk")
    assert f"{STORE} is disk; to store it as a log, do not set {STORE}=disk" in kept()
    spark.conf.unset(STORE)
    import_(path)
    assert kept() == f"{path}: in runs; "
    after: Output = {}
    run(ours, "aggregation", str(path), after, 5)
    assert min(after) >= 4
    assert {row.batch for row in history(path).batches} >= {4, 5}


@pytest.mark.parametrize("asynchronous", ["false", "true"])
def test_queries_whose_commits_ride(spark: SparkSession, tmp_path: Path, asynchronous: str) -> None:
    """With asynchronous progress tracking each commit is written at once, whatever the setting."""
    query = (
        spark.readStream.format("rate").load().writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "ckpt"))
        .option("asyncProgressTrackingEnabled", asynchronous)
        .start()
    )  # fmt: skip
    jvm: Any = spark._jvm  # type: ignore[attr-defined]
    try:
        own = spark._jsparkSession  # type: ignore[attr-defined]
        jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(own)
        found = jvm.org.apache.spark.sql.execution.streaming.StartedQuery
        assert found.writesOffsetsFirst(query.id) == (asynchronous == "false")
    finally:
        query.stop()
