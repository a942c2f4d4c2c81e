"""`sparklog ui`, and `serve --ui`: what is shown where, and what is refused before it listens."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sparklog
from sparklog.cli.app import run
from tests.waiting import answered

TOKEN = "a-token-that-is-long-enough"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with sparklog.open(tmp_path / "log", "rw", options={"flush": "none"}) as log:
        log.create_topic("t")
        log.append("t", pa.table({"value": ["x"]}))
    return tmp_path / "log"


def looked_at(arguments: list[str], token: str | None = None) -> dict[str, Any]:
    """What a server shows under /api/topics; it is stopped then, and says so."""
    command = [sys.executable, "-m", "sparklog.cli", *arguments, "--json"]
    environment = os.environ | ({} if token is None else {"SPARKLOG_UI_TOKEN": token})
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        try:
            event = json.loads(process.stdout.readline())
            assert event["event"] == "serving"
            request = urllib.request.Request(f"{event['ui']}api/topics")
            if token is not None:
                request.add_header("Authorization", f"Bearer {token}")
            found: dict[str, Any] = json.loads(answered(request))
        finally:
            process.send_signal(signal.SIGTERM)
        assert json.loads(process.stdout.readline())["event"] == "stopped"
        assert process.wait(240) == 0
    return found


def test_a_log_is_shown(path: Path) -> None:
    before = sorted(p.stat().st_mtime_ns for p in path.rglob("*"))
    found = looked_at(["ui", str(path), "--listen", "0"], TOKEN)
    assert [topic["name"] for topic in found["topics"]] == ["t"]
    found = looked_at(["serve", str(path), "--read-only", "--ui", "0"])
    assert len(found["topics"]) == 1
    assert sorted(p.stat().st_mtime_ns for p in path.rglob("*")) == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ui", "LOG", "--listen", "0.0.0.0:0"], "--ui-token-file"),
        (["ui", "LOG", "--listen", "0.0.0.0:0"], "--listen=0.0.0.0:0 can be reached"),
        (["ui", "LOG", "--listen", "192.0.2.1:80"], "--listen=192.0.2.1:80 can"),
        (["ui", "LOG", "--listen", "127.0.0.1:TAKEN"], "--listen=127.0.0.1:TAKEN can't be list"),
        (["ui", "LOG", "--listen", "no port"], "--listen=no port"),
        (["serve", "LOG", "--ui", "127.0.0.1:TAKEN"], "--ui=127.0.0.1:TAKEN can't be listened on"),
        (["ui", "LOG", "--listen", "0", "--ui-key", "x"], "--ui-certificate"),
        (["ui", "LOG", "--listen", "0", "--ui-token-file", "nope"], "no such file"),
        (["ui", "LOG", "--listen", "0", "--ui-name", "h"], "--ui-token-file"),
        (["ui", "LOG", "--listen", "http://h:80"], "leave out http://"),
        (["ui", "nowhere", "--listen", "0"], "does not exist"),
        (["serve", "LOG", "--ui", "0.0.0.0:0"], "--ui-token-file"),
        (["serve", "LOG", "--ui-insecure"], "require --ui"),
        (["serve", "LOG", "--ui", "0", "--once"], "leave out --once"),
        (["serve", "LOG", "--read-only"], "requires --kafka or --ui"),
    ],
)
def test_what_is_refused(
    path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        given = [str(path) if a == "LOG" else a.replace("TAKEN", port) for a in arguments]
        assert run(given) in (1, 2)
    assert said.replace("TAKEN", port) in capsys.readouterr().err
