"""Files are as the process's umask says, so that several users of one group can share a log."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog.cli.app import run
from sparklog.service import Service, erase
from tests.tiered.logs import TIERED

ROWS = pa.table({"key": ["a", "b"], "value": ["v", "w"]})


@pytest.fixture(params=[0o002, 0o022, 0o077], ids=["002", "022", "077"])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.mark.parametrize("home", ["dir", "store"])
def test_every_file_is_as_the_umask_says(tmp_path: Path, umask: int, home: str) -> None:
    place = tmp_path / "log"
    path = f"file://{place}" if home == "store" else str(place)
    with sparklog.open(path, "rw") as log:
        log.create_topic("t", config=TIERED if home == "dir" else {})
        for _ in range(4):
            log.append("t", ROWS)
        log.read("t", group="g").read_all()
    remote = {"remote": f"file://{tmp_path}/tier"} if home == "dir" else {}
    with Service(path, **remote) as service:
        service.run_once()
    erase(path, "t", [b"a"])
    reset = ["readers", "reset", path, "--group", "g", "--topic", "t", "--to-earliest"]
    assert run([*reset, "--execute"]) == 0
    modes = {
        os.path.join(directory, name): stat.S_IMODE(os.stat(os.path.join(directory, name)).st_mode)
        for directory, _, names in os.walk(tmp_path)
        for name in names
    }
    assert len(modes) > 5
    assert {oct(mode) for mode in modes.values()} == {oct(0o666 & ~umask)}, modes
