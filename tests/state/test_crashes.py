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

from sparklog.session.setup import MANAGER
from tests import depth
from tests.spark.conftest import ROOT, environment
from tests.state.operators import OPERATORS, Output, run, session, start
from tests.waiting import until

pytestmark = pytest.mark.spark

LAST = 10


class Driver:
    """`driver.py` over one checkpoint and output directory, as often as it is started.

    A context manager: what still runs at its end is killed.
    """

    def __init__(self, home: Path, operator: str, provider: str, **env: str) -> None:
        self.checkpoint, self.output = home / "ckpt", home / "out"
        self.output.mkdir(exist_ok=True)
        self._home, self._args, self._env = home, (operator, provider), env
        self._started: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "Driver":
        return self

    def __exit__(self, *exc: object) -> None:
        for process in self._started:
            if process.poll() is None:
                kill(process)

    def start(self, until: int = LAST) -> subprocess.Popen[bytes]:
        places = [str(self.checkpoint), str(self.output), str(until)]
        with (self._home / "driver.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.state.driver", *self._args, *places],
                env=environment(**self._env), cwd=ROOT, start_new_session=True, stdout=log,
                stderr=log,
            )  # fmt: skip
        self._started.append(process)
        return process

    def said(self) -> str:
        return (self._home / "driver.log").read_text()

    def batches(self) -> list[int]:
        return sorted(int(p.stem) for p in self.output.glob("*.json"))

    def rows(self, batch: int) -> list[list[object]]:
        found: list[list[object]] = json.loads((self.output / f"{batch}.json").read_text())
        return found

    def wait_for(self, batch: int, process: subprocess.Popen[bytes]) -> None:
        def is_done() -> bool:
            assert process.poll() is None, self.said()
            return (self.output / f"{batch}.json").exists()

        until(is_done, f"batch {batch}", state=self.said, seconds=240)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the driver, its JVM and its workers at once."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def check_kills(spark: SparkSession, home: Path, operator: str, provider: str, rounds: int) -> None:
    expected: Output = {}
    rng = random.Random(f"{operator}/{provider}")
    with Driver(home, operator, provider) as driver:
        for _ in range(rounds):
            seen = driver.batches()
            process = driver.start(10**6)
            driver.wait_for(seen[-1] + 1 if seen else 0, process)
            time.sleep(rng.random() * 0.5)
            kill(process)
        last = driver.batches()[-1]
        process = driver.start(last + 1)
        assert process.wait(timeout=300) == 0, driver.said()
    run(session(spark, provider, None), operator, home / "expected", expected, last + 1)
    for batch in range(last + 2):
        assert driver.rows(batch) == json.loads(json.dumps(expected[batch], default=str))


@pytest.mark.deep
def test_kill_nine(spark: SparkSession, tmp_path: Path) -> None:
    check_kills(spark, tmp_path, "aggregation", "changelog", 1)


@pytest.mark.slow
@pytest.mark.parametrize("provider", ["hdfs", "changelog"])
@pytest.mark.parametrize("operator", OPERATORS)
def test_many_kills(spark: SparkSession, tmp_path: Path, operator: str, provider: str) -> None:
    if (operator, provider) == ("transform_with_state", "hdfs"):
        pytest.skip("Spark's transformWithState takes the RocksDB provider alone")
    check_kills(spark, tmp_path, operator, provider, depth.SLOW_STATE_KILLS)


@pytest.mark.deep
def test_a_second_driver_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """While the query runs; once it has stopped, another process may go on."""
    output: Output = {}
    query = start(session(spark, "hdfs", MANAGER), "aggregation", tmp_path / "ckpt", output)
    try:
        with Driver(tmp_path, "aggregation", "hdfs") as driver:
            until(lambda: output)
            assert driver.start(10**6).wait(timeout=300) != 0
            assert "runs in another process" in driver.said()
            assert query.isActive, query.exception()
            query.stop()
            last = max(output)
            assert driver.start(last + 2).wait(timeout=300) == 0, driver.said()
            assert driver.batches()[-1] >= last + 2
    finally:
        query.stop()


@pytest.mark.deep
def test_an_old_driver_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """A driver that stood still for long finds another one at work, and its writes refused."""
    output: Output = {}
    with Driver(tmp_path, "aggregation", "hdfs") as driver:
        process = driver.start(10**6)
        driver.wait_for(1, process)
        os.killpg(process.pid, signal.SIGSTOP)
        try:
            time.sleep(1)  # its threads stop one by one
            lock = tmp_path / "ckpt/sparklog/sparklog.lock"
            (tmp_path / "copy").write_bytes(lock.read_bytes())
            os.replace(tmp_path / "copy", lock)  # its locks are on a file that is gone
            ours = session(spark, "hdfs", MANAGER)
            run(ours, "aggregation", tmp_path / "ckpt", output, max(driver.batches()) + 4)
        finally:
            os.killpg(process.pid, signal.SIGCONT)
        assert process.wait(timeout=300) != 0
        # By the lock file, by the run, or by Spark itself: whichever is looked at first.
        reasons = (
            "was replaced",
            "has taken over",
            "CONCURRENT_STREAM_LOG_UPDATE",
            "Multiple streaming queries are concurrently using",
        )
        assert any(reason in driver.said() for reason in reasons), driver.said()
