"""A log that lost the URL or the metadata of its copies: every command says so, and what helps."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import sparklog
from sparklog.cli.app import run as cli
from sparklog.clock import ManualClock
from sparklog.errors import DataCorruptionError
from sparklog.fs import LOCAL
from sparklog.service import Service, verify
from sparklog.service.health import examine
from sparklog.service.health.model import Level
from sparklog.service.verification.findings import Severity
from sparklog.tiered.settings import REMOTE_NAME, SPARE_NAME, read_settings
from tests.service.logs import cut, flip
from tests.tiered.logs import filled

Damage = Callable[[Path], None]


@pytest.fixture(scope="module")
def tiered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log whose closed segments are all remote only, beside its bucket."""
    base = tmp_path_factory.mktemp("tiered")
    (base / "bucket").mkdir()
    clock = ManualClock(1_700_000_000_000)
    with filled(base / "log", clock, 12, local_retention_bytes="0"):
        for _ in range(3):
            Service(base / "log", remote=f"file://{base}/bucket", clock=clock).run_once()
    return base


@pytest.fixture
def place(tiered: Path, tmp_path: Path) -> Path:
    """A copy of both; the URL is that of the copy."""
    shutil.copytree(tiered, tmp_path / "it")
    path = tmp_path / "it"
    assert cli(["tier", "rebuild", str(path / "log"), "--remote", f"file://{path}/bucket"]) == 0
    return path


def metadata(path: Path) -> Path:
    return next((path / "__remote_log_metadata-0").glob("*.log"))


SPOILS: dict[str, Damage] = {
    "flipped": lambda file: flip(file, 60),
    "empty": lambda file: cut(file, 0),
    "truncated": lambda file: cut(file, 50),
    "missing": lambda file: file.unlink(),
}
ONE = [
    (name, kind)
    for name in (REMOTE_NAME, SPARE_NAME)
    for kind in SPOILS
    if (name, kind) != (SPARE_NAME, "missing")  # a log of an earlier version
]

METADATA: dict[str, Damage] = {
    "directory missing": lambda path: shutil.rmtree(path / "__remote_log_metadata-0"),
    "log missing": lambda path: metadata(path).unlink(),
    "flipped": lambda path: flip(metadata(path), 300),
    "truncated": lambda path: cut(metadata(path), 700),
    "empty": lambda path: cut(metadata(path), 0),
}


def count(path: Path) -> int:
    with sparklog.open(path) as log:
        return log.read("t").read_all().num_rows


@pytest.mark.parametrize(("name", "damage"), ONE)
def test_one_of_two_files(place: Path, name: str, damage: str) -> None:
    """Reads go on, `verify` says so, and its repair writes both again."""
    log = place / "log"
    before = read_settings(LOCAL, str(log))
    SPOILS[damage](log / name)
    assert count(log) == 12
    assert cli(["tier", "verify", str(log)]) == 0
    (found,) = verify(log).findings
    assert (found.severity, found.repaired) == (Severity.DIFFERENCE, False)
    assert os.path.basename(found.file) == name
    report = verify(log, repair=True)
    assert report.ok and report.findings[0].repaired
    assert (log / REMOTE_NAME).read_bytes() == (log / SPARE_NAME).read_bytes()
    assert read_settings(LOCAL, str(log)) == before
    assert not Service(log).run_once().errors
    assert not verify(log).findings


def test_a_log_of_an_earlier_version(place: Path) -> None:
    """It has one file, which is no fault; the next service writes the other."""
    log = place / "log"
    (log / SPARE_NAME).unlink()
    assert not verify(log).findings
    Service(log).run_once()
    assert (log / SPARE_NAME).exists()


@pytest.mark.parametrize("damage", SPOILS)
def test_the_url_is_lost(place: Path, damage: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The command that each message quotes brings the records back, and the service."""
    log = place / "log"
    for name in (REMOTE_NAME, SPARE_NAME):
        SPOILS[damage](log / name)
    messages = []
    with pytest.raises(DataCorruptionError) as refused:
        count(log)
    messages.append(str(refused.value))
    report = verify(log)
    assert not report.ok and report.findings[0].severity is Severity.DAMAGE
    messages.append(report.findings[0].what)
    for command in (["tier", "verify"], ["tier", "status"]):
        assert cli([*command, str(log)]) == 1
        messages.append(capsys.readouterr().err)
    verdict = examine(str(log))
    assert verdict.level is Level.RED
    (check,) = [check for check in verdict.checks if check.name == "tier"]
    assert check.level is Level.RED and check.command is not None
    messages.append(f"`{check.command}`")
    wanted = ["sparklog", "tier", "rebuild", str(log), "--remote", "URL"]
    for message in messages:
        (quoted,) = re.findall("`(sparklog [^`]*)`", " ".join(message.split()))
        assert shlex.split(quoted) == wanted, message
    assert cli([*wanted[1:-1], f"file://{place}/bucket"]) == 0
    assert count(log) == 12
    assert not Service(log).run_once().errors
    assert verify(log).ok and cli(["tier", "verify", str(log), "--deep"]) == 0
    assert examine(str(log)).level is Level.GREEN


@pytest.mark.parametrize(
    "damage",
    [n if n == "directory missing" else pytest.param(n, marks=pytest.mark.deep) for n in METADATA],
)
def test_the_metadata_is_lost(place: Path, damage: str, capsys: pytest.CaptureFixture[str]) -> None:
    log = place / "log"
    METADATA[damage](log)
    with pytest.raises(DataCorruptionError, match="`sparklog tier rebuild PATH`"):
        count(log)
    report = verify(log)
    assert not report.ok
    assert any(f"`sparklog tier rebuild {log}`" in found.what for found in report.findings)
    for command in (["tier", "verify"], ["tier", "status"]):
        assert cli([*command, str(log)]) == 1
        assert "`sparklog tier rebuild PATH`" in " ".join(capsys.readouterr().err.split())
    verdict = examine(str(log))
    assert verdict.level is Level.RED
    (check,) = [check for check in verdict.checks if check.name == "tier"]
    assert check.command == f"sparklog tier rebuild {log}"
    verify(log, repair=True)  # which makes nothing worse
    assert cli(["tier", "rebuild", str(log)]) == 0
    assert count(log) == 12
    assert not Service(log).run_once().errors
    assert verify(log).ok and cli(["tier", "verify", str(log), "--deep"]) == 0
    assert examine(str(log)).level is Level.GREEN


def test_a_rebuild_with_another_url_changes_nothing(place: Path) -> None:
    """An empty store: it is refused, and the log still knows the right one."""
    log = place / "log"
    before = read_settings(LOCAL, str(log))
    (place / "other").mkdir()
    assert cli(["tier", "rebuild", str(log), "--remote", f"file://{place}/other"]) == 1
    assert read_settings(LOCAL, str(log)) == before
    assert count(log) == 12


def test_metadata_that_names_no_copies(place: Path) -> None:
    """A partition that began anew, empty: reads fail, so `verify` and `status` report it."""
    log = place / "log"
    assert verify(log).ok and examine(str(log)).level is Level.GREEN
    shutil.rmtree(log / "__remote_log_metadata-0")
    assert cli(["verify", str(log), "--give-up"]) == 0
    with pytest.raises(DataCorruptionError):
        count(log)
    report = verify(log)
    assert {found.severity for found in report.findings} == {Severity.DAMAGE}
    assert all(f"`sparklog tier rebuild {log}`" in found.what for found in report.findings)
    (check,) = [check for check in examine(str(log)).checks if check.name == "tier"]
    assert (check.level, check.command) == (Level.RED, f"sparklog tier rebuild {log}")
    assert cli(["tier", "rebuild", str(log)]) == 0
    assert count(log) == 12
    assert verify(log).ok and examine(str(log)).level is Level.GREEN


def test_a_rebuilt_ledger_keeps_tiered_records_without_any_copy_of_the_topics(place: Path) -> None:
    """Their configuration is lost; that the topic is tiered follows from its log start."""
    log = place / "log"
    shutil.rmtree(log / "__sparklog_commits-0")
    for name in ("sparklog.state", "sparklog.topics"):
        (log / name).unlink()
    report = verify(log, repair=True)
    assert any("remote.storage.enable=true" in line for line in report.done), report.done
    assert count(log) == 12
    assert verify(log).ok and cli(["tier", "verify", str(log), "--deep"]) == 0
    assert not Service(log).run_once().errors


def test_remote_records_are_read_without_partition_metadata(place: Path) -> None:
    """The topics file has the topic's id as well."""
    log = place / "log"
    (log / "t-0" / "partition.metadata").unlink()
    assert count(log) == 12
    assert verify(log, repair=True).ok
