"""Whole applications: killed at random moments, under spark-submit, two at a time."""

import functools
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest
from click.testing import CliRunner

import sparklog
from sparklog.cli.doctor import doctor
from sparklog.errors import SparklogError
from sparklog.jvm.jar import jar
from tests import depth
from tests.spark.conftest import environment
from tests.spark.driver import ROWS
from tests.spark.jvm import quick
from tests.waiting import until

pytestmark = pytest.mark.spark

DRIVER = str(Path(__file__).with_name("driver.py"))
CLUSTER = ["--master", "local-cluster[2,1,1024]", "--conf", "spark.ui.enabled=false"]


def committed(path: Path) -> tuple[int, int]:
    """Records of topics a and b that are committed by now."""
    counts = []
    for topic in ("a", "b"):
        try:
            with sparklog.open(path) as log:
                counts.append(sum(end for _, end in log.offsets(topic).values()))
        except SparklogError:
            counts.append(0)  # no log, or no such topic yet
    return counts[0], counts[1]


def _has_committed(
    driver: subprocess.Popen[bytes], path: Path, before: tuple[int, int], output: Path
) -> bool:
    assert driver.poll() is None, output.read_text()[-5000:]
    return all(now > was for now, was in zip(committed(path), before, strict=True))


def kill_rounds(base: Path, rounds: int, seed: int) -> None:
    rng, path = random.Random(seed), base / "log"
    output = base / "driver.log"
    for n in range(rounds):
        before = committed(path)
        with output.open("a") as sink:
            driver = subprocess.Popen(
                [sys.executable, DRIVER, "stream", str(path), str(base)],
                env=environment(),
                stdout=sink,
                stderr=sink,
                start_new_session=True,
            )
        try:
            until(
                functools.partial(_has_committed, driver, path, before, output),
                f"round {n}: a commit", seconds=300, pause_s=0.05,
            )  # fmt: skip
            time.sleep(rng.uniform(0, 1.5))
        finally:
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
    with sparklog.open(path, "rw"):  # recovery, and a clean close
        pass
    for topic, count in zip(("a", "b"), committed(path), strict=True):
        with sparklog.open(path) as log:
            found = log.read(topic, columns=["value"]).read_all()["value"].to_pylist()
        assert sorted(int(v) for v in found) == list(range(count)), f"seed {seed}"
        assert count % ROWS == 0


@pytest.mark.deep
def test_killed_driver_writes_exactly_once(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    kill_rounds(tmp_path, depth.DRIVER_KILLS, seed)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_killed_driver_writes_exactly_once_50_times(tmp_path: Path) -> None:
    kill_rounds(tmp_path, 50, random.randrange(2**32))


@pytest.mark.deep
def test_spark_submit_on_a_cluster_beside_another_application(tmp_path: Path) -> None:
    path = tmp_path / "log"
    where = [str(path), str(tmp_path / "checkpoint")]
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    done = threading.Event()
    appended = [0]

    def other() -> None:  # the second application: plain Python, at the same time
        with sparklog.open(path, "rw") as log:
            log.create_topic("c", 2, {"retention.ms": "-1"}, if_not_exists=True)
            while not done.is_set():
                log.append("c", pa.table({"value": [b"other"] * 10}), partition=0)
                appended[0] += 10
                done.wait(0.05)

    thread = threading.Thread(target=other)
    thread.start()
    try:
        run = subprocess.run(
            [
                str(submit), *CLUSTER, "--conf", f"spark.executor.extraJavaOptions={quick()}",
                *checkpoints_as_logs(), DRIVER, "once", *where,
            ],
            env=environment(SUBMITTED="yes"),
            capture_output=True,
            text=True,
            timeout=300,
        )  # fmt: skip
    finally:
        done.set()
        thread.join()
    assert run.returncode == 0, run.stderr[-5000:]
    with sparklog.open(path) as log:
        rows = log.read("c", columns=["value"]).read_all()["value"].to_pylist()
        mine = [row for row in log.commits().to_pylist() if row["writer"] == "once"]
    own = sorted(int(v) for v in rows if v != b"other")
    assert own == list(range(20_000))
    assert len(rows) - len(own) == appended[0] > 0
    assert len({row["offset"] for row in mine}) == 1
    assert "rows" in run.stdout
    with sparklog.open(tmp_path / "checkpoint/stateful/sparklog") as log:  # executors wrote state
        assert {"0", "1"} == set(log.read("commits").read_all()["key"].cast("string").to_pylist())
        deltas = log.read("state.0.default").read_all()
    assert set(deltas["key"].cast("string").to_pylist()) >= {"1.delta", "2.delta"}
    assert set(deltas["partition"].to_pylist()) == {0, 1}


def checkpoints_as_logs() -> list[str]:
    """What `spark-submit $(sparklog doctor --spark-conf --args)` passes."""
    said = CliRunner().invoke(doctor, ["--spark-conf", "--args"])
    assert said.exit_code == 0, said.output
    return [*said.output.split(), "--conf", "spark.sql.shuffle.partitions=2"]


def bare_python(directory: Path, *, of_executors: bool = False) -> Path:
    """A Python without sparklog; `of_executors`: on the driver's side it has it."""
    python = directory / "python"
    site = Path(pyspark.__file__).parents[1]  # on a path its links to a checkout aren't followed
    bare = f'PYTHONPATH={site} exec {os.path.realpath(sys.executable)} -s "$@"'
    if of_executors:  # only the worker of a cluster sets the variable
        bare = f'[ -n "$SPARK_LOG_URL_STDOUT" ] || exec {sys.executable} "$@"\n{bare}'
    python.write_text(f"#!/bin/sh\n{bare}\n")
    python.chmod(0o755)
    return python


def zipped_package(directory: Path) -> Path:
    """What --py-files takes."""
    package, root = directory / "package.zip", Path(sparklog.__file__).parents[1]
    with zipfile.ZipFile(package, "w") as file:
        for source in (root / "sparklog").rglob("*.py"):
            file.write(source, source.relative_to(root))
    return package


@pytest.mark.deep  # tests/state/test_session.py has the like
@pytest.mark.parametrize("jars", ["", "spark.jars"] if depth.DEPTH == "all" else ["spark.jars"])
def test_workers_without_sparklog_are_named_and_the_session_stays_usable(
    tmp_path: Path, jars: str
) -> None:
    """Spark refuses the Python source's name once it finds the jar's class of that name."""
    python, package = bare_python(tmp_path), zipped_package(tmp_path)
    done = subprocess.run(
        [
            sys.executable, str(Path(__file__).with_name("bare_workers.py")), str(python),
            str(package), jar() if jars else "", str(tmp_path),
        ],
        env=environment(), cwd=tmp_path, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-5000:]
    *before, refused, enabled, first, second = json.loads(done.stdout.splitlines()[-1])
    assert refused.startswith(f"InvalidRequestError: Spark's Python workers run {python}, which")
    assert "No module named 'sparklog'" in refused and "PYSPARK_PYTHON" in refused
    assert (enabled, first, second) == (None, 1, 2)
    assert all("call sparklog.register(spark)" in error for error in before)
    assert len(before) == bool(jars)


@pytest.mark.deep
def test_a_table_of_the_catalog_says_why_it_cannot_be_used(tmp_path: Path) -> None:
    """Without the jar Spark makes such a table, and asks sparklog nothing before."""
    script = Path(__file__).with_name("catalog_tables.py")
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        env=environment(), cwd=tmp_path, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-5000:]
    told, count = json.loads(done.stdout.splitlines()[-1])
    assert count == 2
    for use, text in told.items():
        assert "can't be a table of Spark's catalog" in text, (use, text)
        assert "Remove it by DROP TABLE, which deletes no log. To write" in text, (use, text)


@pytest.mark.deep
def test_an_executor_without_sparklog_is_named_with_its_host(tmp_path: Path) -> None:
    """The driver's host has it, so `register` sees nothing wrong; the package is shipped then."""
    script = Path(__file__).with_name("bare_executors.py")
    python = bare_python(tmp_path, of_executors=True)
    done = subprocess.run(
        [
            sys.executable, str(script), str(python), str(zipped_package(tmp_path)),
            str(tmp_path / "log"),
        ],
        env=environment(), cwd=tmp_path, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-5000:]
    *bare, shipped, write, read = json.loads(done.stdout.splitlines()[-1])
    assert (shipped, write, read) == (None, None, 2)
    assert len(bare) == 2
    for text in bare:
        assert f"Spark's Python worker on host {socket.gethostname()} runs " in text
        assert "No module named 'sparklog'. Install that version of sparklog" in text
        assert "Traceback" not in text
