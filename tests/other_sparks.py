"""The tests with another version of PySpark than the installed one.

    python -m tests.other_sparks VERSION [PYTEST'S ARGUMENTS]     all tests that use Spark

pip brings PySpark once into the tests' cache (tests/jars.py). PYTHONPATH puts it before the
installed one, in the driver and in Spark's Python workers.
"""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests import jars
from tests.paths import ROOT

VERSIONS: Final = ("4.0.5", "4.1.4", "4.2.1")
"""Besides the installed one, the newest of each that sparklog supports."""
SINK_ONLY: Final = "3.5.9"
SUITE: Final = (
    "tests/spark/test_source.py", "tests/spark/test_datasource.py", "tests/spark/test_sink.py",
    "tests/spark/test_jvm_datasource.py", "tests/spark/test_row_staging.py",
    "tests/spark/test_gateway.py", "tests/spark/test_state.py", "tests/spark/test_progress.py",
    "tests/spark/test_error_texts.py", "tests/state/test_changes.py", "tests/state/test_rewind.py",
    "tests/jvm/test_checkpoint.py",
)  # fmt: skip
"""A night's suite for each: sink, source, both data paths, checkpoints over a restart, tools."""
CORE: Final = (
    "tests/spark/test_sink.py", "tests/spark/test_jvm_datasource.py",
    "tests/spark/test_row_staging.py", "tests/spark/test_state.py", "tests/jvm/test_checkpoint.py",
)  # fmt: skip
"""CI's suite, for the oldest version: where its Scala differs most."""
ALL: Final = ("tests/spark", "tests/state", "tests/jvm", "tests/source", "tests/sink")


def pyspark(version: str) -> Path:
    """Return a directory with that PySpark. Raises: jars.Unavailable."""
    directory = jars.cache() / f"pyspark-{version}"

    def install(target: Path) -> None:
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(target)]
        _run([*pip, f"pyspark=={version}"])
        (metadata,) = target.glob("pyspark-*.dist-info/METADATA")
        needed = re.search(r"^Requires-Dist: py4j\s*\(?([^);\s]+)", metadata.read_text(), re.M)
        assert needed is not None, metadata
        _run([*pip, f"py4j{needed[1]}"])

    jars.once(directory, install)
    return directory


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    if done.returncode != 0:
        raise jars.Unavailable(f"pip can't bring it: {done.stderr.strip()[-300:]}")


def environment(version: str) -> dict[str, str]:
    """Return an environment in which Python finds that PySpark. Raises: jars.Unavailable."""
    path = os.pathsep.join([str(pyspark(version)), str(ROOT), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path.rstrip(os.pathsep)}


def run(version: str, arguments: Sequence[str]) -> int:
    """Run pytest with that PySpark; return its exit code. Raises: jars.Unavailable."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    return subprocess.call(command, cwd=ROOT, env=environment(version))


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], [*ALL, *sys.argv[2:]]))
