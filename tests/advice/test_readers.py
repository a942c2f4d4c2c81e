"""What messages advise readers whose offsets are gone, and the owners of files that others read."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from sparklog.cli.app import run
from sparklog.errors import InvalidRequestError
from sparklog.kafka.users import Users, read_users


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
