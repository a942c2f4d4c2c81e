"""`sparklog ui --export` and `serve --ui` as users and scripts meet them."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import pytest

import sparklog
from sparklog.cli.app import run
from tests.service.logs import make
from tests.ui.page_text import checked
from tests.waiting import answered

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "log"
    make(path)
    return path


def test_a_page(log: Path, tmp_path: Path, capsys: Capture) -> None:
    page = tmp_path / "page.html"
    assert run(["ui", str(log), "--export", str(page)]) == 0
    checked(page.read_text("utf-8"))
    said = capsys.readouterr()
    assert said.out == ""
    assert re.match(rf"{page}: [\d.]+ KiB, 2 topics, 9 segments, looked at in ", said.err)
    assert run(["ui", str(log), "--export", "-"]) == 0
    assert capsys.readouterr().out.startswith("<!doctype html>")


def test_for_scripts(log: Path, tmp_path: Path, capsys: Capture) -> None:
    assert run(["ui", str(log), "--export", "-", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [t["name"] for t in found["topics"]] == ["t", "u"]
    with sparklog.open(log) as opened:
        ends = {str(p): list(span) for p, span in opened.offsets("t").items()}
    shown = {str(p["partition"]): [p["log_start"], p["end"]]
             for p in found["topics"][0]["partitions"]}  # fmt: skip
    assert shown == ends
    file = tmp_path / "report.json"
    assert run(["ui", str(log), "--json", "--export", str(file)]) == 0
    assert capsys.readouterr().out == ""
    assert json.loads(file.read_text())["kind"] == "log"


def test_damage_is_told(log: Path, tmp_path: Path, capsys: Capture) -> None:
    path = shutil.copytree(log, tmp_path / "log")
    shutil.rmtree(path / "t-1")
    page = tmp_path / "page.html"
    assert run(["ui", str(path), "--export", str(page)]) == 1
    assert f"damage: {path}: partitions are missing: t-1" in capsys.readouterr().err
    assert "t-1" in page.read_text("utf-8")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["nowhere", "--export", "-"], 2, "does not exist"),
        (["LOG", "--export", "no/such/dir/x.html"], 1, "can't be written"),
        (["LOG", "--export", "-", "--storage-options", "[]"], 2, "is not a JSON object"),
        ([], 2, "Missing argument"),
        (["LOG", "--export", "-", "--listen", "0"], 2, "leave out --listen and --ui-..."),
        (["LOG", "--export", "-", "--ui-insecure"], 2, "leave out --listen and --ui-..."),
    ],
)
def test_wrong_use(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture,
    arguments: list[str], code: int, words: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    given = [str(log) if a == "LOG" else a for a in arguments]
    assert run(["ui", *given]) == code
    assert words in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["--ui", "x"], "PORT"), (["--ui", "0", "--once"], "leave out --once"),
     (["--ui", "70000"], "PORT")],
)  # fmt: skip
def test_wrong_use_of_serve(log: Path, capsys: Capture, arguments: list[str], words: str) -> None:
    assert run(["serve", str(log), *arguments]) == 2
    assert words in capsys.readouterr().err


def test_serve_shows_it_live_and_ends(log: Path, tmp_path: Path) -> None:
    """One process: the service at work, the page beside it, both gone with SIGTERM."""
    path = shutil.copytree(log, tmp_path / "log")
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    serving = subprocess.Popen(
        [sys.executable, "-m", "sparklog.cli", "serve", str(path), "--ui", "0", "--json"],
        stdout=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    killer = threading.Timer(480, serving.kill)
    killer.start()
    try:
        assert serving.stdout is not None
        told = serving.stdout.readline()
        url = json.loads(told)["ui"]
        assert url.startswith("http://127.0.0.1:")
        before = json.loads(answered(f"{url}api/report"))
        assert [t["name"] for t in before["topics"]] == ["t", "u"]
        checked(answered(url).decode(), is_live=True)
        serving.send_signal(signal.SIGTERM)
        rest = serving.communicate(timeout=240)[0]
        assert serving.returncode == 0
        assert json.loads(rest)["event"] == "stopped"
        with pytest.raises(OSError, match="refused"):
            urllib.request.urlopen(url, timeout=240)
    finally:
        killer.cancel()
        serving.kill()
        serving.wait()
