"""Checkpoints that Spark made (tests/golden/checkpoints), a copy of each for every test."""

import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import paths

GOLDEN = paths.GOLDEN / "checkpoints"
GAPS = {"async", "repartitioned", "repartitioned-ids", "repartitioned-global"}
"""Where Spark left batches out, which is a warning."""

_ALL = sorted(path.name.removesuffix(".tar.xz") for path in GOLDEN.glob("*.tar.xz"))
NAMES = [name for name in _ALL if name not in GAPS]
Golden = Callable[[str], Path]


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("golden")
    for name in _ALL:
        with tarfile.open(GOLDEN / f"{name}.tar.xz") as tar:
            tar.extractall(root, filter="data")
    return root


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody's query was just stopped here."""
    monkeypatch.setattr("sparklog.checkpoint.log_backed.lock.RELEASE_MS", 0)


@pytest.fixture
def golden(unpacked: Path, tmp_path: Path) -> Golden:
    """A copy of a checkpoint by its name, to do with as one likes."""

    def copy(name: str) -> Path:
        return Path(shutil.copytree(unpacked / name, tmp_path / name))

    return copy
