"""Wheel and sdist have all that the package reads of its own files."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from sparklog.jvm.compiler import sources
from tests.paths import ROOT

pytest.importorskip("setuptools", minversion="77", reason="the build backend of pyproject.toml")
BUILD = "from setuptools import build_meta as b; b.build_sdist('out'); b.build_wheel('out')"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the two, of the files that git has; without a C compiler, for its time."""
    tree = tmp_path_factory.mktemp("tree")
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--deduplicate"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in names.splitlines():
        if (ROOT / name).is_file() and not name.startswith("tests/"):
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_bytes((ROOT / name).read_bytes())
    (tree / "Cython").mkdir()
    (tree / "Cython" / "__init__.py").write_text("raise ImportError")  # C takes a minute
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    command = [sys.executable, "-W", "ignore", "-c", BUILD]
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return tree / "out"


def packaged() -> set[str]:
    """Files of git's in the package, but for those that only a build or a reader of them needs."""
    listed = ["git", "ls-files", "sparklog", "*_sparklog.py"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return {name for name in names.splitlines() if (ROOT / name).is_file()}


def test_the_wheel_has_all_of_the_package(built: Path) -> None:
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        assert sorted(packaged() - {*wheel.namelist()}) == []
        scala = [name for name in wheel.namelist() if name.endswith(".scala")]
        assert len(scala) == len(sources()) > 20


def test_the_sdist_has_all_of_the_package(built: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert sorted(packaged() - names) == []
    assert {"setup.py", "pyproject.toml", "README.md", "LICENSE"} <= names


def test_an_installed_package_finds_its_sources(built: Path, tmp_path: Path) -> None:
    """Unpacked as pip does, and imported from a zip, as --py-files has it."""
    wheel = next(built.glob("*.whl"))
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(tmp_path / "site")
    look = (
        "from sparklog.jvm import compiler as c; print(c.__file__, sum(map(len, c.sources()[0])))"
    )
    for place in (tmp_path / "site", wheel):
        environment = {**os.environ, "PYTHONPATH": str(place)}
        done = subprocess.run(
            [sys.executable, "-c", look],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
        )
        path, size = done.stdout.split() or pytest.fail(done.stderr[-2000:])
        assert path.startswith(str(place))
        assert int(size) == sum(map(len, sources()[0]))
