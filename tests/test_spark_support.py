"""Which versions of Spark are accepted, and what an older one is told."""

import subprocess
import sys
from pathlib import Path

import pytest

from sparklog.errors import InvalidRequestError
from sparklog.spark_support import SINK_ONLY, check_spark, jar_version, spark_version
from tests.paths import ROOT


@pytest.mark.parametrize(
    ("text", "version"),
    [("4.1.4", (4, 1)), ("4.0.0.dev1", (4, 0)), ("3.5.2-amzn-0", (3, 5)), ("", (0, 0)),
     ("x", (0, 0))],
)  # fmt: skip
def test_spark_version(text: str, version: tuple[int, int]) -> None:
    assert spark_version(text) == version


@pytest.mark.parametrize("version", ["4.0.0", "4.3.7", "4.4.0", "5.0.0"])
def test_supported_and_newer_versions_are_accepted(version: str) -> None:
    check_spark(version, "it")


@pytest.mark.parametrize("version", ["3.5.9", "3.4.1", "2.4.8", "unknown"])
def test_older_versions_are_refused_with_the_list(version: str) -> None:
    supported = rf"Spark {version}\. .* 4\.0, 4\.1, 4\.2 and 4\.3"
    with pytest.raises(InvalidRequestError, match=supported):
        check_spark(version, "it")


def test_spark_3_5_is_accepted_for_the_sink() -> None:
    check_spark("3.5.0", "it", oldest=SINK_ONLY)
    with pytest.raises(InvalidRequestError, match=r"With Spark 3\.5, only .*SegmentSink"):
        check_spark("3.4.4", "it", oldest=SINK_ONLY)


@pytest.mark.parametrize(
    ("spark", "jar"),
    [("4.0.5", (4, 0)), ("4.1.0", (4, 1)), ("4.2.0", (4, 2)), ("4.3.0", (4, 2)), ("4.4.1", (4, 4)),
     ("3.5.9", (3, 5))],
)  # fmt: skip
def test_jar_version(spark: str, jar: tuple[int, int]) -> None:
    assert jar_version(spark) == jar


def test_the_sink_refuses_an_older_spark(tmp_path: Path) -> None:
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").write_text("__version__ = '3.4.4'")
    code = f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(ROOT)!r}]; import sparklog.sink"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "InvalidRequestError: sparklog.sink doesn't work with Spark 3.4.4" in done.stderr
