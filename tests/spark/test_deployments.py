"""The ways of docs/deploying.md: where the package and the jar are, and what works then."""

import json
import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path
from typing import Any

import pyspark
import pytest

from tests.paths import ROOT
from tests.spark import deployed
from tests.spark.conftest import environment
from tests.spark.jvm import quick

pytestmark = [pytest.mark.spark, pytest.mark.deep]
APPLICATION = Path(deployed.__file__)
PROGRAMS = Path(pyspark.__file__).parent / "bin"
CLUSTER = {
    "spark.master": "local-cluster[1,1,1024]", "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1", "spark.sql.shuffle.partitions": "2",
    "spark.task.maxFailures": "1",
}  # fmt: skip
SUFFIXES = {".py", ".so", ".pxd", ".scala", ".jar"}
ROWS = deployed.VALUES
BY_JVM, BY_PYTHON = ["jvm", "jvm", ROWS], ["python", "python", ROWS]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the wheel, named *.zip."""
    path = tmp_path_factory.mktemp("package") / "sparklog.zip"
    with zipfile.ZipFile(path, "w") as packed:
        packed.write(ROOT / "pyspark_sparklog.py", "pyspark_sparklog.py")
        for file in sorted((ROOT / "sparklog").rglob("*")):
            if file.name == "SHA256SUMS" or (
                file.suffix in SUFFIXES and ".cpython-" not in file.name
            ):
                packed.write(file, file.relative_to(ROOT))
    return path


def make_python(home: Path, package: Path | None = None) -> Path:
    """Return the Python of a new virtual environment, which has sparklog's libraries."""
    venv.create(home, symlinks=True)
    (site,) = home.glob("lib/python*/site-packages")
    libraries = {str(Path(module.__file__).parents[1]) for module in (pyspark, pytest)}
    (site / "libraries.pth").write_text("\n".join(libraries))  # editable installs aren't followed
    if package is not None:
        with zipfile.ZipFile(package) as packed:
            packed.extractall(site)
    return home / "bin" / "python"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, package: Path) -> Path:
    """A Python with sparklog."""
    return make_python(tmp_path_factory.mktemp("installed") / "env", package)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python without sparklog."""
    return make_python(tmp_path_factory.mktemp("bare") / "env")


class Submit:
    """spark-submit in a directory of its own, to a cluster whose executors are processes."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "logs").mkdir()

    def environment(self, **more: str) -> dict[str, str]:
        dropped = {"PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"}
        return {k: v for k, v in environment().items() if k not in dropped} | more

    def run(self, *words: object, **more: str) -> subprocess.CompletedProcess[str]:
        conf = {**CLUSTER, "spark.executor.extraJavaOptions": quick()}
        settings = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
        return subprocess.run(
            [str(PROGRAMS / "spark-submit"), *settings, *map(str, words)],
            env=self.environment(**more), cwd=self.directory, capture_output=True, text=True,
            timeout=300,
        )  # fmt: skip

    def __call__(self, *words: object, calls: str = "", ships: object = "", **more: str) -> Any:
        """Run the application; return what it found."""
        directory = self.directory / "logs"
        done = self.run(*words, APPLICATION, directory, calls, ships, **more)
        assert done.returncode == 0, done.stderr[-5000:]
        return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def submit(tmp_path: Path) -> Submit:
    return Submit(tmp_path)


def kernel_is_compiled() -> bool:
    return any((ROOT / "sparklog" / "format").glob("kernel*.so"))


def test_jars_and_an_installed_wheel(
    submit: Submit, installed: Path, bare: Path, tmp_path: Path
) -> None:
    """The driver's own Python needs no sparklog, if it calls nothing of it."""
    jar = tmp_path / "sparklog.jar"
    command = [installed, "-m", "sparklog.cli", "spark-conf", "--jar", jar]
    subprocess.run(command, env=submit.environment(), cwd=tmp_path, check=True, timeout=300)
    pythons = {"PYSPARK_PYTHON": str(installed), "PYSPARK_DRIVER_PYTHON": str(bare)}
    found = submit("--jars", jar, **pythons)
    assert (found["driver"], found["executor"][0]) == (str(bare), str(installed))
    assert found["executor"][2] == kernel_is_compiled()
    assert (found["batch"], found["python batch"]) == (ROWS, ROWS), found
    assert (found["stream"], found["python stream"]) == (BY_JVM, BY_PYTHON), found


@pytest.mark.parametrize("calls", ["register", "enable"])
def test_py_files(submit: Submit, bare: Path, package: Path, calls: str) -> None:
    found = submit("--py-files", package, calls=calls, PYSPARK_PYTHON=str(bare))
    assert package.name in found["executor"][1] or found["executor"][2]
    assert found["executor"][2] == kernel_is_compiled()
    assert (found["batch"], found["python batch"]) == (ROWS, ROWS), found
    by = BY_JVM if calls == "enable" else BY_PYTHON
    assert (found["stream"], found["python stream"]) == (by, BY_PYTHON), found


def test_a_package_that_a_running_session_ships(
    submit: Submit, bare: Path, package: Path
) -> None:
    found = submit(calls="enable", ships=package, PYSPARK_PYTHON=str(bare))
    assert (found["batch"], found["python batch"]) == (ROWS, ROWS), found
    assert (found["stream"], found["python stream"]) == (BY_JVM, BY_PYTHON), found
