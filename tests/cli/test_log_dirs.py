"""`sparklog log-dirs`: kafka-log-dirs' document."""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog.cli.app import run
from tests import paths

Capture = pytest.CaptureFixture[str]
GOLDEN = paths.GOLDEN / "kafka-4.1" / "logdir"


def test_of_several_dirs(tmp_path: Path, capsys: Capture) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    with sparklog.open(f"{one},{two}", "rw") as log:
        log.create_topic("t", 2)
        log.create_topic("u")
        log.append("t", pa.table({"value": [b"x" * 100]}), partition=0)
    size = (one / "t-0" / "00000000000000000000.log").stat().st_size
    size = size or (two / "t-0" / "00000000000000000000.log").stat().st_size
    assert run(["log-dirs", f"{one},{two}", "--describe"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [
        "Querying brokers for log directories information",
        "Received log directory information from brokers 0",
    ]
    document = json.loads(lines[2])
    assert len(lines) == 3
    (broker,) = document["brokers"]
    assert (document["version"], broker["broker"]) == (1, 0)
    assert [each["logDir"] for each in broker["logDirs"]] == [str(one), str(two)]
    assert [each["error"] for each in broker["logDirs"]] == [None, None]
    parts = [part for each in broker["logDirs"] for part in each["partitions"]]
    assert {"partition": "t-0", "size": size, "offsetLag": 0, "isFuture": False} in parts
    assert sorted(part["partition"] for part in parts) == ["t-0", "t-1", "u-0"]
    assert run(["log-dirs", f"{one},{two}", "--json", "--topic-list", "u,none"]) == 0
    dirs = json.loads(capsys.readouterr().out)["brokers"][0]["logDirs"]
    assert [part["partition"] for each in dirs for part in each["partitions"]] == ["u-0"]


def test_of_a_brokers_dir(tmp_path: Path, capsys: Capture) -> None:
    path = Path(shutil.copytree(GOLDEN, tmp_path / "logdir"))
    (path / "txn-0.0123456789abcdef0123456789abcdef-delete").mkdir()
    assert run(["log-dirs", str(path), "--json"]) == 0
    (broker,) = json.loads(capsys.readouterr().out)["brokers"]
    sizes = {part["partition"]: part["size"] for part in broker["logDirs"][0]["partitions"]}
    assert sizes["txn-0"] == sum(f.stat().st_size for f in (path / "txn-0").glob("*.log"))
    assert len(sizes) == 15


def test_a_dir_that_is_not_mounted(tmp_path: Path, capsys: Capture) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    with sparklog.open(f"{one},{two}", "rw") as log:
        log.create_topic("t", 2, {"cleanup.policy": "compact"})
    two.rename(tmp_path / "away")
    two.mkdir()
    assert run(["log-dirs", f"{one},{two}", "--json"]) == 1
    first, second = json.loads(capsys.readouterr().out)["brokers"][0]["logDirs"]
    assert (first["error"], len(first["partitions"])) == (None, 1)
    assert "is its disk mounted?" in second["error"] and second["partitions"] == []
    assert run(["topics", "describe", f"{one},{two}", "--json"]) == 0
    parts = json.loads(capsys.readouterr().out)[0]["partitions"]
    assert [part["offline"] is None for part in parts] == [True, False]
    assert run(["topics", "describe", f"{one},{two}"]) == 0
    assert "t-1 is offline: " in capsys.readouterr().out
    assert run(["compact", f"{one},{two}"]) == 1  # it said that all is clean
    assert "failed: t-1: " in capsys.readouterr().err
