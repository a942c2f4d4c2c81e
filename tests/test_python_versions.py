"""Newer Pythons: the package installs there, and a part of the suite passes.

CI runs the suite on Python 3.11. Each of these tests copies the tree, makes a virtual environment
of another version in it, installs the package with its test extra, and runs `FILES` there at the
depth of the small suite. The installation takes minutes, so they are slow tests (`make test-all`).
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.paths import ROOT

pytestmark = pytest.mark.slow
VERSIONS = ("3.12", "3.13")
FILES = (
    "tests/format", "tests/log/test_log.py", "tests/logdir/test_commit_log.py",
    "tests/logdir/test_opening.py", "tests/diskless/test_commit_log.py",
    "tests/diskless/test_merging.py", "tests/cli/test_consume.py", "tests/cli/test_topics.py",
    "tests/spark/test_applications.py",  # one Spark application
)  # fmt: skip


def interpreter(version: str) -> str:
    """Return the path of a Python of that version; skips where there is none."""
    found = shutil.which(f"python{version}")
    installed = (Path.home() / ".pyenv/versions").glob(f"{version}.*/bin/python")
    candidates = [*([found] if found else []), *map(str, sorted(installed))]
    for candidate in candidates:  # pyenv's shim is on PATH for versions that aren't chosen
        said = subprocess.run([candidate, "-V"], capture_output=True, text=True, check=False)
        if said.stdout.startswith(f"Python {version}."):
            return candidate
    pytest.skip(f"no Python {version}: neither python{version} on PATH nor pyenv's")


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_part_of_the_suite_passes(version: str, tmp_path: Path) -> None:
    python, tree = interpreter(version), tmp_path / "tree"
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tree / name)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "PYTHON"))}
    env = kept | {"SPARKLOG_TEST_DEPTH": "small"}

    def run(*command: str) -> str:
        done = subprocess.run(
            command, cwd=tree, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
        return done.stdout

    made = str(tree / ".venv/bin/python")
    run(python, "-m", "venv", ".venv")
    run(made, "-m", "pip", "install", "-q", "-e", ".[test]")
    look = "import sys, sparklog.format.kernel as k; print(sys.version_info[:2], k.COMPILED)"
    assert run(made, "-c", look).strip() == f"({version.replace('.', ', ')}) True"
    passed = re.findall(r"(\d+) passed", run(made, "-m", "pytest", "-q", "-n0", *FILES))
    assert int(passed[-1]) > 500
