"""Commands that read a log reach what is remote and encrypted, and say what they lack."""

from __future__ import annotations

import base64
import shutil
from pathlib import Path

import pytest

from sparklog.cli.app import run as cli
from sparklog.clock import ManualClock
from sparklog.service import Service
from sparklog.tiered.keyring import Keyring
from tests.tiered.logs import filled

ARCHIVE, LOG = "archive", "log"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log whose closed segments are remote only and encrypted, its bucket and its key ring."""
    home, clock = tmp_path_factory.mktemp("made"), ManualClock()
    ring = home / "ring"
    ring.write_text(f"k {base64.b64encode(bytes(32)).decode()}\n")
    (home / ARCHIVE).mkdir()
    with filled(home / LOG, clock, local_retention_bytes="0"):
        for _ in range(3):
            Service(
                home / LOG,
                remote=f"file://{home / ARCHIVE}",
                keyring=Keyring.load(str(ring)),
                clock=clock,
            ).run_once()
    assert len(list((home / LOG / "t-0").glob("*.log"))) == 1
    return home


class Done:
    """How a command ended, and all that it said."""

    def __init__(self, capfd: pytest.CaptureFixture[str], *words: str) -> None:
        capfd.readouterr()
        self.exit_code = cli(words)
        self.output = "".join(capfd.readouterr())


@pytest.mark.parametrize("where", [ARCHIVE, LOG])
@pytest.mark.parametrize(
    "command",
    [
        ["consume", "PATH", "--topic", "t", "--from-beginning"],
        ["get-offsets", "PATH", "--topic", "t", "--time", "1700000003000"],
        ["export", "PATH", "--topic", "t", "--to", "OUT"],
    ],
)
def test_the_ring_is_needed_and_taken(
    made: Path,
    tmp_path: Path,
    command: list[str],
    where: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    path = f"file://{made / ARCHIVE}" if where == ARCHIVE else str(made / LOG)
    words = [{"PATH": path, "OUT": str(tmp_path / "out")}.get(word, word) for word in command]
    refused = Done(capfd, *words)
    assert refused.exit_code
    assert "remote.keyring" in refused.output
    shutil.rmtree(tmp_path / "out", ignore_errors=True)
    done = Done(capfd, *words, "--keyring", str(made / "ring"))
    assert done.exit_code == 0, done.output
    shutil.rmtree(tmp_path / "out", ignore_errors=True)
    monkeypatch.setenv("SPARKLOG_KEYRING", str(made / "ring"))
    assert Done(capfd, *words).exit_code == 0


@pytest.mark.parametrize("where", [ARCHIVE, LOG])
@pytest.mark.parametrize(
    "command", [["topics", "describe", "PATH"], ["configs", "describe", "PATH"], ["ui", "PATH"]]
)
def test_what_reads_listings_takes_the_ring_too(
    made: Path, tmp_path: Path, command: list[str], where: str, capfd: pytest.CaptureFixture[str]
) -> None:
    path = f"file://{made / ARCHIVE}" if where == ARCHIVE else str(made / LOG)
    words = [path if word == "PATH" else word for word in command]
    output = ["--export", str(tmp_path / "r.html")] if command[0] == "ui" else []
    done = Done(capfd, *words, *output, "--keyring", str(made / "ring"), "--patience-ms", "0")
    assert done.exit_code == 0, done.output


def test_a_wrong_port_is_told_by_a_command(
    made: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """In the store's own words, and as nothing that is lost."""
    pytest.importorskip("s3fs")
    path = tmp_path / "log"
    shutil.copytree(made / LOG, path)
    from sparklog.fs import LOCAL
    from sparklog.tiered.settings import RemoteSettings, write_settings

    write_settings(LOCAL, str(path), RemoteSettings("s3://bucket/logs"))
    options = '{"endpoint_url": "http://127.0.0.1:1", "key": "some-key", "secret": "some-secret"}'
    given = ["--storage-options", options, "--patience-ms", "0"]
    done = Done(capfd, "consume", str(path), "--topic", "t", "--from-beginning", *given)
    assert done.exit_code
    assert "can't read s3://bucket/logs" in done.output
    assert "Could not connect" in done.output
    assert "restore the file" not in done.output


def test_storage_options_are_read_from_a_file(
    made: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    given = tmp_path / "options.json"
    given.write_text('{"auto_mkdir": false}')
    command = ["topics", "list", f"file://{made / ARCHIVE}", "--storage-options"]
    assert Done(capfd, *command, f"@{given}").exit_code == 0
    given.write_text('["hunter2"]')
    done = Done(capfd, *command, f"@{given}")
    assert (done.exit_code, "hunter2" in done.output) == (2, False)
    assert "options.json is not a JSON object" in " ".join(done.output.split())
    done = Done(capfd, *command, '{"secret": "hunter2"')
    assert (done.exit_code, "hunter2" in done.output) == (2, False)
    done = Done(capfd, *command, f"@{tmp_path / 'none'}")
    assert done.exit_code == 2
    assert "none cannot be read (No such file or directory)" in " ".join(done.output.split())


def test_storage_options_are_read_from_the_environment(
    made: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["topics", "list", f"file://{made / ARCHIVE}"]
    monkeypatch.setenv("SPARKLOG_STORAGE_OPTIONS", "[]")
    assert Done(capfd, *command).exit_code == 2
    monkeypatch.setenv("SPARKLOG_STORAGE_OPTIONS", '{"auto_mkdir": false}')
    assert Done(capfd, *command).exit_code == 0
    # The variable may be set for a whole session: a log dir without a tier ignores it.
    assert Done(capfd, "topics", "list", str(made / LOG)).exit_code == 0
