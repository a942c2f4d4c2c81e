"""`sparklog log-dirs`: sizes of partitions, and moving them."""

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
    table = [line.split() for line in capsys.readouterr().out.splitlines()[3:]]
    assert sorted(row[1] for row in table if row) == ["t-0", "t-1", "u-0"]
    assert [str(size), "B"] in [row[2:] for row in table]
    assert run(["log-dirs", f"{one},{two}", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    (broker,) = document["brokers"]
    assert (document["version"], broker["broker"]) == (1, 1)
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
    assert run(["serve", f"{one},{two}", "--once", "--task", "compact"]) == 1  # not "nothing to do"
    assert "failed: t-1: " in capsys.readouterr().out


def test_move(tmp_path: Path, capsys: Capture) -> None:
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    path = f"{one},{two}"
    with sparklog.open(path, "rw") as log:
        log.create_topic("t", 4)
        log.append("t", pa.table({"value": [b"x" * 100]}), partition=0)
    given = ["log-dirs", "move", path, "--topic", "t", "--partition", "0", "--to"]
    assert run([*given, two]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"Moved t-0 from {one} to {two}: ")
    assert run([*given, two]) == 2
    assert f"t-0 is in {two} already" in capsys.readouterr().err
    assert run([*given, one, "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert (done["partition"], done["source"], done["target"]) == (0, two, one)
    assert done["bytes"] > 100 and done["took_ms"] >= 0
    with sparklog.open(path) as log:
        assert log.topic("t").dirs[0] == f"{one}/t-0"
        assert log.read("t").read_all().num_rows == 1


def test_move_beside_a_writer(tmp_path: Path, capsys: Capture) -> None:
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    with sparklog.open(f"{one},{two}", "rw") as log:
        log.create_topic("t")
        given = ["--topic", "t", "--partition", "0", "--to", two]
        assert run(["log-dirs", "move", f"{one},{two}", *given]) == 1
        said = " ".join(capsys.readouterr().err.split())
        assert "t-0 was not moved: " in said and "Stop the service" in said
        assert log.topic("t").dirs[0] == f"{one}/t-0"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (["--topic", "t"], "Missing option '--partition'"),
        (["--topic", "t", "--partition", "9", "--to", "/x"], "t-9 is not in"),
        (["--topic", "u", "--partition", "0", "--to", "/x"], "topic u is not in"),
        (["--topic", "t", "--partition", "0", "--to", "/x"], "/x is no log dir of this log"),
    ],
)
def test_a_move_that_is_refused(
    tmp_path: Path, capsys: Capture, given: list[str], why: str
) -> None:
    with sparklog.open(tmp_path / "log", "rw") as log:
        log.create_topic("t")
    assert run(["log-dirs", "move", str(tmp_path / "log"), *given]) == 2
    assert why in " ".join(capsys.readouterr().err.split())
