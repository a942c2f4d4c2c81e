"""`sparklog metrics` and the endpoint of `sparklog serve`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
import yaml

import sparklog
from sparklog.cli.app import run
from sparklog.logdir.home import commits_of
from tests.promtool import parsed
from tests.service.logs import make
from tests.waiting import answered

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    make(tmp_path / "log")
    return tmp_path / "log"


def test_text_for_prometheus(log: Path, capsys: Capture) -> None:
    assert run(["metrics", str(log)]) == 0
    samples = parsed(capsys.readouterr().out)
    found = {(s.name, s.labels.get("topic"), s.labels.get("partition")): s.value for s in samples}
    assert found["kafka_log_log_logendoffset", "t", "0"] == 60
    commits = {s.labels["kind"]: s.value for s in samples if s.name == "sparklog_commits_total"}
    with sparklog.open(log) as opened:
        assert commits == {"append": opened.commits().num_rows, "commit": 0}
    assert not [name for name, _, _ in found if "process" in name or "service" in name]


def test_a_log_is_told_by_its_whole_path(
    log: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several logs in one Prometheus are known apart by it."""
    monkeypatch.chdir(log.parent)
    assert run(["metrics", "./log/"]) == 0
    (info,) = [s for s in parsed(capsys.readouterr().out) if s.name == "sparklog_info"]
    assert info.labels["path"] == str(log)


def test_json(log: Path, capsys: Capture) -> None:
    assert run(["metrics", str(log), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (one,) = [p for p in found["partitions"] if (p["topic"], p["partition"]) == ("t", 0)]
    assert (one["log_start_offset"], one["log_end_offset"], one["segments"]) == (14, 60, 5)
    (end,) = [
        s["value"] for s in found["samples"]
        if s["name"] == "kafka_log_log_logendoffset"
        and s["labels"] == {"topic": "t", "partition": "0"}
    ]  # fmt: skip
    assert end == 60


def test_tables(log: Path, capsys: Capture) -> None:
    assert run(["metrics", str(log), "--table"]) == 0
    text = capsys.readouterr().out
    rows = [line.split()[:2] for line in text.splitlines()]
    assert [row for row in rows if row[:1] == ["t"]] == [["t", "0"], ["t", "1"], ["t", "none"]]
    assert "free" in text


def test_a_dir_that_a_writer_could_not_write_is_said(log: Path, capsys: Capture) -> None:
    with sparklog.open(log, "rw") as writer:
        commits_of(writer).lock.mark(0, failing=True)
        assert run(["metrics", str(log), "--table"]) == 0
    assert "free; the last write there failed" in capsys.readouterr().out.replace("\n", " ")


def test_what_can_not_be_read_is_said(log: Path, capsys: Capture) -> None:
    (log / "sparklog.watermarks").unlink()
    (log / "sparklog.lock").unlink()
    (path,) = (log / "__sparklog_commits-0").glob("*.log")
    raw = path.read_bytes()
    path.write_bytes(raw[:70] + b"x" + raw[71:])
    assert run(["metrics", str(log)]) == 1
    given = capsys.readouterr()
    assert "ledger" in given.err
    assert "kafka_log_logmanager_logdirectoryoffline" in given.out


def test_misuse(tmp_path: Path, log: Path, capsys: Capture) -> None:
    assert run(["metrics", str(tmp_path / "none")]) == 2
    assert "does not exist" in capsys.readouterr().err
    assert run(["metrics", str(log), "--json", "--table"]) == 2
    assert run(["serve", str(log), "--metrics-port", "70000"]) == 2
    assert run(["serve", str(log), "--metrics-port", "0", "--metrics-address", "256.1.1.1"]) == 2
    assert "choose another port" in capsys.readouterr().err


def test_files_for_prometheus_and_grafana(log: Path, capsys: Capture) -> None:
    assert run(["metrics", "--dashboard"]) == 0
    assert json.loads(capsys.readouterr().out)["uid"] == "sparklog"
    for wrong in (
        ["--dashboard", str(log)], ["--dashboard", "--alert-rules"], ["--alert-rules", "--json"],
    ):  # fmt: skip
        assert run(["metrics", *wrong]) == 2
        assert "leave out PATH and the other options" in capsys.readouterr().err
    assert run(["metrics"]) == 2
    assert "Missing argument 'PATH'" in capsys.readouterr().err
    assert run(["metrics", "--alert-rules"]) == 0
    (group,) = yaml.safe_load(capsys.readouterr().out)["groups"]
    assert len(group["rules"]) > 10


def test_serve_with_an_endpoint(log: Path) -> None:
    command = [sys.executable, "-m", "sparklog.cli", "serve", str(log), "--json"]
    with subprocess.Popen(
        [*command, "--metrics-port", "0"], stdout=subprocess.PIPE, text=True, env=dict(os.environ)
    ) as process:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["metrics"]
        found = {s.name: s.value for s in parsed(answered(url).decode())}
        assert found["sparklog_service_leading"] in (0, 1)
        process.send_signal(signal.SIGTERM)
        assert json.loads(process.stdout.read())["event"] == "stopped"
    assert process.returncode == 0


def test_a_log_in_a_store_by_its_url(tmp_path: Path, capsys: Capture) -> None:
    url = f"file://{tmp_path}/bucket"
    with sparklog.open(url, "rw") as log:
        log.create_topic("t", 1)
        log.append("t", pa.table({"value": ["a", "b"]}))
    assert run(["metrics", url, "--storage-options", "{}"]) == 0
    found = {(s.name, s.labels.get("topic")): s.value for s in parsed(capsys.readouterr().out)}
    assert found["kafka_log_log_logendoffset", "t"] == 2
    assert found["sparklog_merge_lag_pieces", "t"] == 1
    assert run(["metrics", url, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["term"], told["holder"], told["partitions"][0]["pieces"]) == (0, {}, 1)
    assert told["commits"]["commits"]["append"] == 1
    assert run(["serve", url, "--once"]) == 0
    capsys.readouterr()
    assert run(["metrics", url, "--table"]) == 0
    text = capsys.readouterr().out
    assert f"{url}: available" in text.replace("\n", "")
    assert "service: term 1, process" in text
    assert "not merged" in text


def test_a_store_without_a_log(tmp_path: Path, capsys: Capture) -> None:
    assert run(["metrics", f"memory://{tmp_path.name}/none"]) == 2
    assert "or it is empty" in capsys.readouterr().err
