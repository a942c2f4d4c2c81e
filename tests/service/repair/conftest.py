"""Logs with every kind of fact in their ledgers, copied for each test to damage."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.repair.damaged_logs import build

NAMES = ("older", "crashed", "closed")


@pytest.fixture(scope="session")
def built_logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory with the logs that `damaged_logs.build` makes."""
    root = tmp_path_factory.mktemp("logs")
    build(root)
    return root


@pytest.fixture
def logs(built_logs: Path, tmp_path: Path) -> Iterator[Path]:
    """A directory with copies of the logs, for this test to damage."""
    for name in NAMES:
        shutil.copytree(built_logs / name, tmp_path / name)
    yield tmp_path
    for name in NAMES:
        shutil.rmtree(tmp_path / name, ignore_errors=True)
