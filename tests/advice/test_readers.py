"""What messages advise readers whose offsets are gone, and the owners of files that others read."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog.cli.app import run
from sparklog.errors import InvalidRequestError, OffsetOutOfRangeError
from sparklog.kafka.users import Users, read_users

ROWS = pa.table({"value": [b"%d" % n for n in range(6)]})


@pytest.fixture(params=["log dir", "store"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> sparklog.Log:
    """A log whose group g has read offset 1; the records before offset 4 are deleted."""
    path = f"{tmp_path}/log" if request.param == "log dir" else f"file://{tmp_path}/log"
    with sparklog.open(path, "rw") as made:
        made.create_topic("t")
        made.append("t", ROWS)
        made.commit_offsets("g", {"t": {0: 1}})
        made.delete_records("t", {0: 4})
    return sparklog.open(path)


@pytest.mark.parametrize(("start", "rows"), [(-2, 2), (-1, 0), (5, 1)])
def test_a_group_goes_on_without_what_is_gone(log: sparklog.Log, start: int, rows: int) -> None:
    with log:
        with pytest.raises(OffsetOutOfRangeError, match=r"pass start=\{0: -2\} \(earliest\)"):
            log.read("t", group="g").read_all()
        assert log.read("t", group="g", start={0: start}).read_all().num_rows == rows


def test_a_users_file_is_made_by_the_command(tmp_path: Path) -> None:
    path = str(tmp_path / "users")
    advice = f"sparklog kafka-users {path} --add NAME` creates it"
    with pytest.raises(InvalidRequestError, match=advice):
        Users(path)
    assert run(["kafka-users", path, "--add", "a", "--no-password"]) == 0
    assert "a" in read_users(path)


@pytest.mark.parametrize("mode", [0o666, 0o644])
def test_a_users_file_is_for_its_owner_alone(
    tmp_path: Path, mode: int, caplog: pytest.LogCaptureFixture
) -> None:
    path = str(tmp_path / "users")
    assert run(["kafka-users", path, "--add", "a", "--no-password"]) == 0
    os.chmod(path, mode)
    with caplog.at_level(logging.WARNING, "sparklog"):
        if mode & 0o022:
            with pytest.raises(InvalidRequestError, match=f"run: chmod 600 {path}"):
                read_users(path)
        else:
            read_users(path)
            assert f"run: chmod 600 {path}" in caplog.text
    os.chmod(path, 0o600)
    caplog.clear()
    assert "a" in read_users(path)
    assert "chmod" not in caplog.text
