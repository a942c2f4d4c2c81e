"""Backups that an earlier version wrote (tests/golden/backups) are restored, and added to."""

import tarfile
from pathlib import Path
from typing import Any

import pytest

import sparklog
from sparklog.checkpoint import verify
from sparklog.checkpoint.backup.archiving import archive
from sparklog.checkpoint.backup.restoring import list_points, restore
from sparklog.errors import DataCorruptionError
from sparklog.service import verify as verify_log
from sparklog.tiered.keyring import Keyring
from tests.checkpoint.conftest import Golden
from tests.checkpoint.views import view
from tests.paths import GOLDEN

KEY: dict[str, Any] = {"keyring": Keyring({"old": bytes(range(32))}, "old")}
BACKUPS = [
    ("log-dir", "changelog", 11, {}), ("records", "ids", 9, {}), ("store", "changelog", 11, {}),
    ("encrypted", "hdfs", 13, KEY),
]  # fmt: skip


@pytest.fixture
def repository(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with tarfile.open(GOLDEN / "backups" / f"{request.param}.tar.xz") as tar:
        tar.extractall(tmp_path, filter="data")
    return Path((tmp_path / request.param).rename(tmp_path / "repository"))


@pytest.mark.parametrize(
    ("repository", "name", "batch", "key"), BACKUPS, indirect=["repository"],
    ids=[each[0] for each in BACKUPS],
)  # fmt: skip
def test_is_restored(
    repository: Path, name: str, batch: int, key: dict[str, Any], golden: Golden, tmp_path: Path
) -> None:
    url, path = f"file://{repository}", golden(name)
    (point,) = list_points(url)
    log: str | None = None
    if point.has_log:
        head = (repository / "points" / point.name).read_bytes()[:20]
        in_store = b'"version": 3' in head
        log = f"file://{tmp_path}/log" if in_store else str(tmp_path / "log")
    done = restore(url, tmp_path / "back", log=log, **key)
    assert (done.batch, done.log) == (batch, log)
    held, wanted = view(tmp_path / "back"), view(path)
    assert {n for n in held if held[n] != wanted.get(n)} <= {"state/0/_metadata/v2/0"}
    assert verify(tmp_path / "back").latest == batch
    if log is not None:
        assert verify_log(log).ok
        with sparklog.open(log) as opened:
            values = opened.read("t").read_all().column("value").to_pylist()
        assert [int(value) for value in values] == [*range(12)]
    # A backup of this version beside it shares nothing with it; both are restored.
    made = archive(path, url, **key)
    assert made.new_bytes == made.read_bytes > 0
    assert restore(url, tmp_path / "new", **key).point == made.point
    assert restore(url, tmp_path / "old", point=point.name, **key).batch == batch
    assert view(tmp_path / "old") == held


@pytest.mark.parametrize("repository", ["records", "encrypted"], indirect=True)
def test_every_block_is_checked(repository: Path, tmp_path: Path) -> None:
    (point,) = list_points(f"file://{repository}")
    key: dict[str, Any] = KEY if (repository / "keys").exists() else {}
    files = [file for file in (repository / "blocks").rglob("*") if file.is_file()]
    for number, file in enumerate(files):
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
        with pytest.raises(DataCorruptionError, match=file.name):
            restore(f"file://{repository}", tmp_path / f"back{number}", **key)
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
    assert restore(f"file://{repository}", tmp_path / "back", **key).batch == point.batch
