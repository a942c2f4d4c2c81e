"""Each supported version of Spark; and one log and its checkpoints under all of them in turn."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests import other_sparks
from tests.depth import DEPTH
from tests.jars import Unavailable
from tests.paths import ROOT
from tests.spark.conftest import environment as spark_environment

# A test installs a Spark, compiles for it, and runs a suite beside other tests.
pytestmark = [pytest.mark.spark, pytest.mark.deep, pytest.mark.timeout(1800)]
NEWEST = "4.3"
CHAIN = ["4.1.4", "4.2.1", NEWEST, "4.0.5"]
# Each ordered pair of versions once.
EVERY_PAIR = [
    "4.0.5", "4.1.4", "4.0.5", "4.2.1", "4.0.5", NEWEST, "4.1.4", "4.2.1", "4.1.4", NEWEST,
    "4.2.1", NEWEST, "4.0.5",
]  # fmt: skip


def environment(version: str) -> dict[str, str]:
    try:
        path = "" if version == NEWEST else str(other_sparks.pyspark(version))
    except Unavailable as missing:
        pytest.skip(str(missing))
    return spark_environment(PYTHONPATH=f"{path}:{ROOT}".lstrip(":"))


def assert_pass(version: str, *tests: str) -> str:
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(
        command, cwd=ROOT, env={**environment(version), "SPARKLOG_TEST_DEPTH": "small"},
        capture_output=True, text=True, timeout=1200,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-20_000:]
    return done.stdout


VERSIONS = other_sparks.VERSIONS if DEPTH == "all" else other_sparks.VERSIONS[:1]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_spark_tests_pass(version: str) -> None:
    """The small suite, in one session, in at most 4 minutes; in CI a part of it, on the oldest."""
    assert_pass(version, *(other_sparks.SUITE if DEPTH == "all" else other_sparks.CORE))


@pytest.mark.s3
@pytest.mark.parametrize("version", ["4.0.5", "4.1.4"] if DEPTH == "all" else ["4.0.5"])
def test_checkpoints_in_a_bucket(version: str) -> None:
    """Two PUTs per micro-batch, and one driver, also with Hadoop 3.4.1 and 3.4.2."""
    names = "(requests_of_a_batch and put) or takes_over or conflict"
    printed = assert_pass(version, "-m", "deep", "tests/state/test_stored_s3.py", "-k", names)
    if " skipped" in printed:
        pytest.skip(printed[-1000:])
    assert "3 passed" in printed


def test_one_log_and_its_checkpoints_in_all_versions(tmp_path: Path) -> None:
    """Also back from the newest to the oldest: each row is read once, and all is verified."""
    order = EVERY_PAIR if DEPTH == "all" else CHAIN
    for step, version in enumerate(order):
        done = subprocess.run(
            [sys.executable, "-m", "tests.spark.continued", tmp_path, str(step)],
            cwd=ROOT, env=environment(version), capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, f"{order[: step + 1]}\n{(done.stdout + done.stderr)[-8000:]}"
        assert done.stdout.split()[-1].startswith(version), done.stdout


def test_the_sink_and_the_tools_work_with_spark_3_5(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.sink_only", tmp_path],
        cwd=ROOT, env=environment(other_sparks.SINK_ONLY), capture_output=True, text=True,
        timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, (done.stdout + done.stderr)[-8000:]
    assert done.stdout.split()[-1] == other_sparks.SINK_ONLY
