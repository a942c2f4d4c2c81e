"""Processes that are killed while they create state: the checkpoint is complete, or absent."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sparklog.checkpoint import Bootstrapped, bootstrap, diff, rewrite, verify
from tests import depth
from tests.paths import ROOT
from tests.spark.conftest import environment
from tests.state.operators import run, session
from tests.state.test_rewrite import later, settled

pytestmark = [pytest.mark.spark, pytest.mark.deep]

WRITER = """
import itertools, sys
from tests.spark.conftest import build_session
import sparklog
from sparklog.checkpoint import rewrite
spark = build_session()
sparklog.enable(spark)
rewrite(sys.argv[1], sys.argv[2] + "-first", partitions=3, spark=spark)
print("started", flush=True)
for number in itertools.count():
    rewrite(sys.argv[1], f"{sys.argv[2]}-{number}", provider="rocksdb", partitions=3, spark=spark)
"""

BOOTSTRAP = """
import itertools, sys
from tests.spark.conftest import build_session
from tests.state.test_rewrite_kills import seeded
import sparklog
spark = build_session()
sparklog.enable(spark)
seeded(spark, sys.argv[2] + "-first")
print("started", flush=True)
for number in itertools.count():
    seeded(spark, f"{sys.argv[2]}-{number}")
"""


IN_PLACE = """
import os, signal, sys
from tests.spark.conftest import build_session
from tests.state.test_rewrite import later
from sparklog.checkpoint import rewrite
from sparklog.fs import LocalFileSystem

class Killing(LocalFileSystem):
    def exchange(self, first, second):
        done = sys.argv[2] == "after" and super().exchange(first, second)
        os.kill(os.getpid(), signal.SIGKILL)

rewrite(sys.argv[1], in_place=True, partitions=3, spark=build_session(), clock=later, fs=Killing())
"""


def seeded(spark: SparkSession, target: str | Path) -> Bootstrapped:
    history = spark.range(100).withColumn("k", F.col("id") % 20)
    return bootstrap(
        target, lambda rows: rows.groupBy("k").count(), from_=history, output_mode="update"
    )


def killed(writer: str, checkpoint: Path, target: Path, after_s: float) -> None:
    """Create checkpoints, until the process and its JVM are killed."""
    with subprocess.Popen(
        [sys.executable, "-c", writer, checkpoint, target],
        cwd=ROOT, env=environment(), stdout=subprocess.PIPE, start_new_session=True, text=True,
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "started\n"
            time.sleep(after_s)
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def test_kills(spark: SparkSession, tmp_path: Path) -> None:
    rng = random.Random(1)
    path = tmp_path / "ckpt"
    run(session(spark, "hdfs", None), "aggregation", path, {}, 3)
    for number in range(depth.REWRITE_KILLS):
        place = tmp_path / str(number)
        place.mkdir()
        killed(WRITER, path, place / "new", rng.uniform(0.2, 3))
        complete = [each for each in place.iterdir() if not each.name.startswith(".")]
        assert complete, "it was killed before it rewrote anything"
        for each in complete:
            assert not [f for f in verify(each).findings if f.severity == "damage"]
        last = max(complete, key=lambda each: each.stat().st_mtime)
        assert diff(path, last, spark=spark).is_equal
        # What was left is removed by the next call for the same target.
        for left in [each for each in place.iterdir() if each.name.startswith(".")]:
            target = place / left.name[1:].rpartition(".")[0]
            rewrite(path, target, provider="rocksdb", spark=spark)
            assert not left.exists()


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_kill_at_the_exchange(spark: SparkSession, tmp_path: Path, moment: str) -> None:
    """The old and the new checkpoint are complete, each under one of the two names."""
    path = tmp_path / "ckpt"
    run(session(spark, "hdfs", None), "aggregation", path, {}, 3)
    settled(path, 3)
    shutil.copytree(path, tmp_path / "original")
    command = [sys.executable, "-c", IN_PLACE, path, moment]
    done = subprocess.run(command, cwd=ROOT, env=environment(), timeout=240)
    assert done.returncode == -signal.SIGKILL
    (point,) = tmp_path.glob("ckpt.restore-point-*")
    for each in (path, point):
        assert verify(each).ok
        assert diff(tmp_path / "original", each, spark=spark).is_equal
    parts = {each: len(list((each / "state/0").glob("[0-9]*"))) for each in (path, point)}
    assert parts == ({path: 2, point: 3} if moment == "before" else {path: 3, point: 2})
    again = rewrite(path, in_place=True, partitions=4, spark=spark, clock=later)
    assert again.restore_point != str(point)
    run(session(spark, "hdfs", None), "aggregation", path, {}, 5)


def test_kills_of_a_bootstrap(spark: SparkSession, tmp_path: Path) -> None:
    rng = random.Random(2)
    own = session(spark, "hdfs", None)
    for number in range(depth.REWRITE_KILLS):
        place = tmp_path / str(number)
        place.mkdir()
        killed(BOOTSTRAP, place, place / "new", rng.uniform(0.2, 3))
        complete = [each for each in place.iterdir() if not each.name.startswith(".")]
        assert all(verify(each).ok for each in complete)
        last = max(complete, key=lambda each: each.stat().st_mtime)
        assert diff(place / "new-first", last, spark=spark).is_equal
        # What was left is removed by the next call for the same target, with the history's state.
        for left in [each for each in place.iterdir() if each.name.startswith(".")]:
            target = place / left.name[1:].rpartition(".")[0]
            if target.exists():  # it was killed after the checkpoint was complete
                assert not list(left.rglob("*/offsets"))
                shutil.rmtree(target)
            assert seeded(own, target).rows == [20]
            assert not left.exists()
