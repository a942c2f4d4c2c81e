"""What another process does at the same moment is refused, and the same call works afterwards."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog.errors import LogLockedError
from sparklog.fs import LocalFileSystem, LockFile
from sparklog.opening import open_log
from sparklog.service import verify

ROWS = pa.table({"key": [b"k"] * 3, "value": [b"v" * 50] * 3})


@pytest.fixture
def log(tmp_path: Path) -> Path:
    with sparklog.open(tmp_path / "log", "rw") as made:
        made.create_topic("t")
        for _ in range(4):
            made.append("t", ROWS)
    return tmp_path / "log"


def count(path: Path) -> int:
    with sparklog.open(path) as log:
        return log.read("t").read_all().num_rows


class Interrupted(LocalFileSystem):
    """Calls `act` once, when the lock file `name` is opened."""

    def __init__(self, name: str, act: Callable[[], object]) -> None:
        super().__init__()
        self.name = name
        self.act: Callable[[], object] | None = act

    def open_lock(self, path: str, *, create: bool = True) -> LockFile:
        if self.act is not None and os.path.basename(path) == self.name:
            act, self.act = self.act, None
            act()
        return super().open_lock(path, create=create)


def test_a_log_is_opened_again_after_a_broker_has_stopped(log: Path) -> None:
    fs = Interrupted("sparklog.lock", lambda: (log / ".lock").unlink())
    with pytest.raises(LogLockedError, match="removed by a stopping broker; open again"):
        open_log(log, mode="rw", fs=fs)
    with open_log(log, mode="rw", fs=fs) as opened:
        opened.append("t", ROWS)
    assert count(log) == 15


def test_a_log_that_was_opened_meanwhile_is_verified_again(log: Path) -> None:
    (log / "t-0/leader-epoch-checkpoint").write_text("x")
    opened: list[sparklog.Log] = []
    fs = Interrupted(".lock", lambda: opened.append(sparklog.open(log, "rw")))
    report = verify(log, repair=True, fs=fs)
    assert "was opened by another process during the repair; verify it again" in str(report.refused)
    opened[0].close()
    assert verify(log, repair=True).ok
    assert verify(log).ok
    assert count(log) == 12
