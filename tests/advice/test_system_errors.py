"""The advice for what the system refuses."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from sparklog.errors import StorageUnavailableError
from sparklog.fs import LOCAL, write_durably

NOBODY = 65534

DENIED = """
import os, sys
import pyarrow as pa
import sparklog
from sparklog.errors import StorageUnavailableError
from sparklog.service import verify

path, user = sys.argv[1], int(sys.argv[2])
with sparklog.open(path, "rw") as log:
    log.create_topic("t")
    log.append("t", pa.table({"value": [b"x"]}))
owned = [path, *(os.path.join(at, name) for at, dirs, files in os.walk(path)
                 for name in (*dirs, *files))]
for each in owned:
    os.chmod(each, 0o500 if os.path.isdir(each) else 0o400)
os.seteuid(user)
try:
    sparklog.open(path, "rw").close()
except StorageUnavailableError as error:
    assert "give this user the right to do so" in str(error), error
else:
    raise AssertionError("it could be written to")
os.seteuid(os.getuid())
for each in owned:
    os.chown(each, user, -1)
    os.chmod(each, 0o700 if os.path.isdir(each) else 0o600)
os.seteuid(user)
with sparklog.open(path, "rw") as log:
    log.append("t", pa.table({"value": [b"y"]}))
    assert log.read("t").read_all()["value"].to_pylist() == [b"x", b"y"]
assert verify(path).ok
"""


def test_a_user_is_given_the_right_to_write() -> None:
    user = NOBODY if os.getuid() == 0 else os.getuid()
    with tempfile.TemporaryDirectory(dir="/tmp") as home:
        os.chmod(home, 0o777)
        command = [sys.executable, "-c", DENIED, f"{home}/log", str(user)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr


def test_a_call_is_repeated_once_a_disk_has_room(tmp_path: Path) -> None:
    """/dev/full is such a disk. Of a log: tests/crash/test_protocol.py."""
    disk = tmp_path / "file"
    disk.symlink_to("/dev/full")
    with (
        LOCAL.open(str(disk), write=True) as file,
        pytest.raises(StorageUnavailableError, match="free space on that disk, then repeat the"),
    ):
        file.pwrite(b"x", 0)
    disk.unlink()
    write_durably(LOCAL, str(disk), b"x")
    assert disk.read_bytes() == b"x"
