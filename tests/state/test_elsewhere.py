"""Checkpoints where no log may lie: Spark's own manager keeps them, and the user is told."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sparklog.checkpoint import history, verify
from sparklog.session.setup import MANAGER
from tests.state.operators import Output, run, session

pytestmark = pytest.mark.spark

LOGGER = "sparklog.checkpoint.LogCheckpointFileManager"
WARNING = "as files, because it"


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


def check_handed_over(spark: SparkSession, location: str, root: Path) -> None:
    """A stateful query whose checkpoint is at `location`, which shows at `root`, over a restart."""
    output: Output = {}
    ours = session(spark, "hdfs", MANAGER)
    for until in (1, 3):
        with logged(spark) as log:
            run(ours, "aggregation", location, output, until)
        assert log.toString().count(WARNING) == 1
        assert location in log.toString()
    assert set(output) >= {0, 1, 2, 3}
    assert output[3]
    assert not (root / "sparklog").exists()
    assert {str(n) for n in range(4)} <= {p.name for p in (root / "offsets").iterdir()}
    assert {row.batch for row in history(root).batches} >= {0, 1, 2, 3}
    assert verify(root).ok


@pytest.mark.deep
def test_another_file_system(spark: SparkSession, tmp_path: Path) -> None:
    """One that Hadoop knows under a scheme of its own, as s3a and hdfs are."""
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()  # type: ignore[union-attr]
    key = "fs.viewfs.mounttable.default.link./elsewhere"
    (tmp_path / "elsewhere").mkdir()
    hadoop.set(key, (tmp_path / "elsewhere").as_uri())
    try:
        check_handed_over(spark, "viewfs:/elsewhere/ckpt", tmp_path / "elsewhere" / "ckpt")
    finally:
        hadoop.unset(key)


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
def test_a_mounted_file_system(spark: SparkSession, mount: Path) -> None:
    """Network mounts: neither locks nor fsync can be relied on there."""
    check_handed_over(spark, str(mount / "ckpt"), mount / "ckpt")
