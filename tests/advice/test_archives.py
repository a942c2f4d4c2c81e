"""The advice for what works on a log and not on an archive, or the other way round."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog.cli.app import run
from sparklog.errors import InvalidRequestError
from sparklog.service import Service
from sparklog.tiered.restoring import restore

CONFIG = {
    "remote.storage.enable": "true", "internal.segment.bytes": 200, "retention.ms": -1,
    "local.retention.ms": -2, "file.delete.delay.ms": 0, "segment.idle.ms": 1,
}  # fmt: skip
ROW = pa.table({"value": [b"x" * 100]})


@pytest.fixture
def log(tmp_path: Path) -> str:
    """A log dir; four segments of topic t have copies in `tmp_path`/store."""
    path = str(tmp_path / "log")
    with sparklog.open(path, "rw") as made:
        made.create_topic("t", config=CONFIG)
        for _ in range(5):
            made.append("t", ROW)
    for _ in range(2):
        with Service(path, remote=f"file://{tmp_path}/store") as service:
            assert not service.run_once().errors
    return path


@pytest.fixture
def archive(log: str, tmp_path: Path) -> str:
    return f"file://{tmp_path}/store"


def rows(path: str) -> int:
    with sparklog.open(path) as log:
        return log.read("t").read_all().num_rows


def test_an_archive_is_read_or_restored(archive: str, tmp_path: Path) -> None:
    advice = r"use mode='r', or restore it to a log dir \(sparklog tier restore\)"
    with pytest.raises(InvalidRequestError, match=advice):
        sparklog.open(archive, "rw")
    held = rows(archive)
    assert held >= 4
    target = str(tmp_path / "restored")
    assert run(["tier", "restore", archive, target]) == 0
    with sparklog.open(target, "rw") as log:
        log.append("t", ROW)
    assert rows(target) == held + 1
    assert rows(archive) == held


@pytest.mark.parametrize(
    "words",
    [
        ["topics", "delete", "URL", "--topic", "t"],
        ["serve", "URL", "--once", "--task", "compact"],
        ["log-dirs", "URL"],
    ],
)
def test_a_command_that_needs_files_works_once_it_is_restored(
    archive: str, tmp_path: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([archive if word == "URL" else word for word in words]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "tier restore" in said
    target = str(tmp_path / "restored")
    restore(archive, target)
    assert run([target if word == "URL" else word for word in words]) == 0


def test_a_restore_wants_a_directory_of_its_own(archive: str, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    with pytest.raises(InvalidRequestError, match="restore to a directory of its own"):
        restore(archive, tmp_path / "full")
    restore(archive, tmp_path / "own")
    assert rows(str(tmp_path / "own")) == rows(archive)


def test_a_new_log_does_not_begin_where_copies_are(archive: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match=r"can't be written|use mode='r'|an empty prefix"):
        sparklog.open(archive, "rw")
    with sparklog.open(f"{archive}/logs", "rw") as log:
        log.create_topic("t")
        log.append("t", ROW)
    assert rows(f"{archive}/logs") == 1
    assert rows(archive) >= 4


def test_readers_of_an_archive_are_kept_once_it_is_restored(archive: str, tmp_path: Path) -> None:
    with (
        sparklog.open(archive) as log,
        pytest.raises(InvalidRequestError, match="until it is restored to a log dir"),
    ):
        log.commit_offsets("g", {"t": {0: 1}})
    restore(archive, tmp_path / "restored")
    with sparklog.open(tmp_path / "restored", "rw") as log:
        log.commit_offsets("g", {"t": {0: 1}})
        assert log.readers().num_rows == 1


def test_the_timeline_is_read_from_the_log_dir(archive: str, log: str) -> None:
    with (
        sparklog.open(archive) as opened,
        pytest.raises(InvalidRequestError, match="read the log dir itself"),
    ):
        opened.read("t", timeline="current").read_all()
    with sparklog.open(log) as opened:
        assert opened.read("t", timeline="current").read_all().num_rows == 5


@pytest.mark.parametrize("cure", ["delete.on.disable", "copy.disable"])
def test_remote_storage_is_turned_off_in_one_of_two_ways(
    log: str, tmp_path: Path, cure: str
) -> None:
    off = {"remote.storage.enable": "false"}
    with sparklog.open(log, "rw") as opened:
        with pytest.raises(InvalidRequestError, match="would leave its remote copies behind"):
            opened.alter_topic("t", config={**CONFIG, **off})
        more = {f"remote.log.{cure}": "true"}
        opened.alter_topic("t", config={**CONFIG, **more, **(off if "delete" in cure else {})})
    with Service(log) as service:
        assert not service.run_once().errors
    copies = list((tmp_path / "store").rglob("t-0-*/*.log"))
    assert bool(copies) == (cure == "copy.disable")
    assert rows(log) == 5  # the local segments stay
