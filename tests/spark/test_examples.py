"""The examples that need Spark print what they say; all in the session that is there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.examples import FOLDER, load, shown
from tests.spark.conftest import environment
from tests.spark.test_pytest_plugin import PLUGIN, as_it_was
from tests.tiered.s3 import Unavailable, started

__all__ = ["as_it_was"]
pytestmark = pytest.mark.spark
pytest_plugins = ["pytester"]


@pytest.fixture
def quiet(spark: SparkSession) -> Iterator[None]:
    """One of them lets a query fail, whose trace nobody needs to see."""
    spark.sparkContext.setLogLevel("OFF")
    yield
    spark.sparkContext.setLogLevel("ERROR")


@pytest.mark.usefixtures("quiet")
@pytest.mark.deep
@pytest.mark.parametrize(
    "name", ["exactly_once", "replay_after_a_bug", "state_inspected", "kafka_clients"]
)
def test_it_prints_what_it_says(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
) -> None:
    module = load(name, monkeypatch)
    module.main(spark, tmp_path)
    assert capsys.readouterr().out == shown(module)


@pytest.mark.deep  # test_pytest_plugin has the like
@pytest.mark.usefixtures("spark", "as_it_was")
def test_tests_without_a_broker(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    for file in (FOLDER / "tests_without_a_broker").glob("*.py"):
        shutil.copy(file, pytester.path)
    pytester.runpytest_inprocess(*PLUGIN).assert_outcomes(passed=3)


@pytest.mark.s3
@pytest.mark.slow
def test_a_cluster_without_a_shared_disk(tmp_path: Path) -> None:
    """Hosts that see no directory of the others' write and read one log; it checks each row."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    private = ["unshare", *user, "--mount-proc", "--pid", "--fork", "mount", "-t", "tmpfs", "x"]
    found = subprocess.run([*private, str(tmp_path)], capture_output=True, text=True)
    if found.returncode:
        pytest.skip(f"no mount namespaces here: {found.stderr.strip()}")
    try:
        server = started(tmp_path / "s3")
    except Unavailable as missing:
        pytest.skip(str(missing))
    try:
        given = server.options()
        env = environment(
            AWS_ENDPOINT_URL=given["endpoint_url"], AWS_ACCESS_KEY_ID=given["key"],
            AWS_SECRET_ACCESS_KEY=given["secret"], AWS_DEFAULT_REGION="us-east-1",
            TMPDIR=str(tmp_path),
        )  # fmt: skip
        script = FOLDER / "cluster.py"
        done = subprocess.run(
            [sys.executable, str(script), f"{server.bucket()}/logs"],
            env=env, capture_output=True, text=True, timeout=900,
        )  # fmt: skip
    finally:
        server.kill()
    assert done.returncode == 0, done.stderr[-5000:]
    wanted = re.search(r"^    \$ python [^\n]*\n((?:    [^\n]*\n)+)", script.read_text(), re.M)
    assert wanted is not None
    assert done.stdout == textwrap.dedent(wanted[1])
