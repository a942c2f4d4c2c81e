"""The examples that need Spark print what they say; all in the session that is there."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.examples import FOLDER, load, shown
from tests.spark.conftest import environment
from tests.spark.test_pytest_plugin import PLUGIN, as_it_was

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
@pytest.mark.parametrize("name", ["exactly_once", "replay_after_a_bug", "state_inspected"])
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
def test_tests_without_a_broker(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    for file in (FOLDER / "tests_without_a_broker").glob("*.py"):
        shutil.copy(file, pytester.path)
    pytester.runpytest_inprocess(*PLUGIN).assert_outcomes(passed=3)


@pytest.mark.slow
def test_the_quickstart() -> None:
    """What `make demo` runs; it checks itself that each flight is there once."""
    done = subprocess.run(
        [sys.executable, str(FOLDER / "quickstart.py")],
        env=environment(), capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-5000:]
    assert "writer killed (SIGKILL)" in done.stdout
    assert "each of the 336,776 flights is there exactly once" in done.stdout
