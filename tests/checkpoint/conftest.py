"""Checkpoints that Spark made (tests/golden/checkpoints), a copy of each for every test."""

import shutil
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.tiered.s3 import S3Server, Unavailable, started

GOLDEN = Path(__file__).parents[1] / "golden" / "checkpoints"
NAMES = sorted(path.name.removesuffix(".tar.xz") for path in GOLDEN.glob("*.tar.xz"))
Golden = Callable[[str], Path]


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("golden")
    for name in NAMES:
        with tarfile.open(GOLDEN / f"{name}.tar.xz") as tar:
            tar.extractall(root, filter="data")
    return root


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody's query was just stopped here."""
    monkeypatch.setattr("sparklog.checkpoint.locking.RELEASE_MS", 0)


@pytest.fixture
def golden(unpacked: Path, tmp_path: Path) -> Golden:
    """A copy of a checkpoint by its name, to do with as one likes."""

    def copy(name: str) -> Path:
        return Path(shutil.copytree(unpacked / name, tmp_path / name))

    return copy


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A running S3 server. Skips where there is none."""
    try:
        server = started(tmp_path_factory.mktemp("s3"))
    except Unavailable as reason:
        pytest.skip(f"S3: {reason}")
    yield server
    server.kill()
