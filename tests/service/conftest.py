"""What tests of the service share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sparklog.fs import LocalFileSystem
from sparklog.service import service
from sparklog.service.health import examiner
from tests.damage.bucket import BucketHome, MemoryPlace, home
from tests.jars import Unavailable
from tests.promtool import promtool


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A log dir that is not made yet."""
    return str(tmp_path / "log")


@pytest.fixture(scope="module")
def made() -> BucketHome:
    """A log in a bucket, with its objects of all kinds."""
    return home()


@pytest.fixture
def place(made: BucketHome) -> Iterator[MemoryPlace]:
    """The objects of `made`, for a test to damage."""
    with made.lay_out(made.files) as place:
        yield place


@pytest.fixture(autouse=True)
def _a_machine_at_ease(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its disk has room, whatever else fills it meanwhile, and no store's answer comes too late.

    Verdicts are of what a test does to its log; tests of disks and of stores that hang say so.
    """
    free_bytes = LocalFileSystem.free_bytes

    def ample(fs: LocalFileSystem, path: str) -> int:
        free_bytes(fs, path)  # fails where the disk is away
        return 1 << 40

    monkeypatch.setattr(LocalFileSystem, "free_bytes", ample)
    monkeypatch.setattr(examiner, "PATIENCE_MS", 240_000)
    monkeypatch.setattr(examiner, "STORE_CHECK_MS", 240_000)
    monkeypatch.setattr(service, "CHECK_MS", 240_000)


@pytest.fixture(scope="module")
def judge() -> str:
    """promtool; skips with the reason where it can't be had."""
    try:
        return promtool()
    except Unavailable as reason:
        pytest.skip(str(reason))
