"""Drivers that are killed, paused or started twice: state and checkpoint agree."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sparklog.state.session import MANAGER
from tests.spark.conftest import ROOT, environment
from tests.state.operators import OPERATORS, Output, run, session, start

pytestmark = pytest.mark.spark

LAST = 10


class Driver:
    """`driver.py` over one checkpoint and output directory, as often as it is started."""

    def __init__(self, home: Path, operator: str, provider: str, **env: str) -> None:
        self.checkpoint, self.output = home / "ckpt", home / "out"
        self.output.mkdir(exist_ok=True)
        self._home, self._args, self._env = home, (operator, provider), env

    def start(self, until: int = LAST) -> subprocess.Popen[bytes]:
        places = [str(self.checkpoint), str(self.output), str(until)]
        log = (self._home / "driver.log").open("ab")
        return subprocess.Popen(
            [sys.executable, "-m", "tests.state.driver", *self._args, *places],
            env=environment(**self._env), cwd=ROOT, start_new_session=True, stdout=log, stderr=log,
        )

    def said(self) -> str:
        return (self._home / "driver.log").read_text()

    def batches(self) -> list[int]:
        return sorted(int(p.stem) for p in self.output.glob("*.json"))

    def rows(self, batch: int) -> list[list[object]]:
        found: list[list[object]] = json.loads((self.output / f"{batch}.json").read_text())
        return found

    def wait_for(self, batch: int, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + 120
        while not (self.output / f"{batch}.json").exists():
            assert process.poll() is None, self.said()
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.01)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the driver, its JVM and its workers at once."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def check_kills(spark: SparkSession, home: Path, operator: str, provider: str, rounds: int) -> None:
    expected: Output = {}
    rng = random.Random(f"{operator}/{provider}")
    driver = Driver(home, operator, provider)
    for _ in range(rounds):
        seen = driver.batches()
        process = driver.start(10**6)
        driver.wait_for(seen[-1] + 1 if seen else 0, process)
        time.sleep(rng.random() * 0.5)
        kill(process)
    last = driver.batches()[-1]
    process = driver.start(last + 1)
    assert process.wait(timeout=180) == 0, driver.said()
    run(session(spark, provider, None), operator, home / "expected", expected, last + 1)
    for batch in range(last + 2):
        assert driver.rows(batch) == json.loads(json.dumps(expected[batch], default=str))


def test_kill_nine(spark: SparkSession, tmp_path: Path) -> None:
    check_kills(spark, tmp_path, "aggregation", "changelog", 1)


@pytest.mark.slow
@pytest.mark.parametrize("provider", ["hdfs", "changelog"])
@pytest.mark.parametrize("operator", OPERATORS)
def test_many_kills(spark: SparkSession, tmp_path: Path, operator: str, provider: str) -> None:
    if (operator, provider) == ("transform_with_state", "hdfs"):
        pytest.skip("Spark's transformWithState takes the RocksDB provider alone")
    check_kills(spark, tmp_path, operator, provider, 10)


def test_a_second_driver_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """While the query runs; once it has stopped, another process may go on."""
    ours = session(spark, "hdfs", MANAGER)
    output: Output = {}
    query = start(ours, "aggregation", tmp_path / "ckpt", output)
    driver = Driver(tmp_path, "aggregation", "hdfs")
    while not output:
        time.sleep(0.05)
    process = driver.start(10**6)
    assert process.wait(timeout=120) != 0
    assert "runs in another process" in driver.said()
    assert query.isActive, query.exception()
    query.stop()
    last = max(output)
    process = driver.start(last + 2)
    assert process.wait(timeout=120) == 0, driver.said()
    assert driver.batches()[-1] >= last + 2


def test_an_old_run_is_fenced(spark: SparkSession, tmp_path: Path) -> None:
    """A driver that was paused for long finds another one at work, and its writes refused."""
    driver = Driver(tmp_path, "aggregation", "hdfs")
    process = driver.start(10**6)
    driver.wait_for(1, process)
    os.killpg(process.pid, signal.SIGSTOP)
    try:
        locked = tmp_path / "ckpt/sparklog/sparklog.lock"
        copy = tmp_path / "copy"
        copy.write_bytes(locked.read_bytes())
        os.replace(copy, locked)  # what else takes the lock away from a process that stands still
        expected: Output = {}
        run(session(spark, "hdfs", MANAGER), "aggregation", tmp_path / "ckpt", expected, 6)
    finally:
        os.killpg(process.pid, signal.SIGCONT)
    assert process.wait(timeout=120) != 0
    refused = "has taken over" in driver.said()
    assert refused or "CONCURRENT_STREAM_LOG_UPDATE" in driver.said()  # Spark looks first, at times
