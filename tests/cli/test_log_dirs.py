"""`sparklog log-dirs`: kafka-log-dirs' document."""

import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog.cli.app import run
from sparklog.errors import InvalidRequestError
from sparklog.log.log import home_of
from sparklog.service import verify
from sparklog.storage.moves import MoveRequest
from sparklog.tools.partition_moves import read_reassignment
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
    assert [str(size), "B", "no"] in [row[2:] for row in table]
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
    given = ["log-dirs", "move", path, "--topic", "t", "--partition", "0", "--to", two]
    assert run([*given, "--throttle", "1000000"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"Moved t-0 from {one} to {two}: ")
    assert run(given) == 0
    assert capsys.readouterr().out == f"t-0 lies in {two} already.\n"
    asked = tmp_path / "moves.json"
    wanted = [
        {"topic": "t", "partition": 0, "replicas": [1], "log_dirs": [one]},
        {"topic": "t", "partition": 1, "log_dirs": ["any"]},
        {"topic": "t", "partition": 2, "log_dirs": [two]},
    ]
    asked.write_text(json.dumps({"version": 1, "partitions": wanted}))
    assert run(["log-dirs", "move", path, "--reassignment-json-file", str(asked), "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert [(each["partition"], each["to"]) for each in done] == [(0, one), (2, two)]
    with sparklog.open(path) as log:
        assert log.topic("t").dirs == {
            0: f"{one}/t-0", 1: f"{two}/t-1", 2: f"{two}/t-2", 3: f"{two}/t-3",
        }  # fmt: skip
        assert log.read("t").read_all().num_rows == 1


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (["--topic", "t"], "give --topic, --partition and --to"),
        (["--topic", "t", "--partition", "9", "--to", "/x"], "t-9 is not in"),
        (["--topic", "u", "--partition", "0", "--to", "/x"], "topic u is not in"),
        (["--topic", "t", "--partition", "0", "--to", "/x"], "/x is no log dir of this log"),
        (["--reassignment-json-file", "no.json"], "does not exist"),
    ],
)
def test_a_move_that_is_refused(
    tmp_path: Path, capsys: Capture, given: list[str], why: str
) -> None:
    with sparklog.open(tmp_path / "log", "rw") as log:
        log.create_topic("t")
    assert run(["log-dirs", "move", str(tmp_path / "log"), *given]) == 2
    assert why in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{}", "not a reassignment"),
        ("[", "not a reassignment"),
        ('{"partitions": [{"topic": "t", "partition": 0}]}', ""),
        ('{"partitions": [{"topic": "t"}]}', "not a reassignment"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}', "one entry"),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": []}]}',
            "Size of replicas list",
        ),
        (
            '{"partitions": [{"topic": "t", "partition": 0}, {"topic": "t", "partition": 0}]}',
            "duplicate topic partitions: t-0",
        ),
        ('{"partitions": [{"topic": "t", "log_dirs": ["/x"]}]}', "not a reassignment"),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "log_dirs": ["/x", "/y"]}]}',
            "has one entry",
        ),
    ],
)
def test_a_reassignment_that_is_none(text: str, why: str) -> None:
    if not why:
        assert [each.to for each in read_reassignment(text)] == [None]
        return
    with pytest.raises(InvalidRequestError, match=why):
        read_reassignment(text)


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[list[str]]:
    """A log of three log dirs, whose four partitions of 300 kB all lie in the first."""
    found = [str(tmp_path / name) for name in ("one", "two", "three")]
    with sparklog.open(found[0], "rw") as log:
        log.create_topic("t", 4, {"segment.bytes": 1 << 20})
        for partition in range(4):
            log.append("t", pa.table({"value": [b"x" * 1000] * 300}), partition)
    sparklog.open(",".join(found), "rw").close()
    yield found
    with sparklog.open(",".join(found)) as log:
        assert log.read("t").read_all().num_rows == 1200
    assert verify(",".join(found)).ok


def dirs_of(path: str) -> list[str]:
    with sparklog.open(path) as log:
        return [Path(each).parent.name for _, each in sorted(log.topic("t").dirs.items())]


def test_balance(disks: list[str], capsys: Capture, tmp_path: Path) -> None:
    path = ",".join(disks)
    assert run(["log-dirs", "balance", path, "--within", "50"]) == 0
    said = capsys.readouterr().out
    assert "All is even once 2 partitions of" in said
    assert "--execute carries it out" in said
    assert dirs_of(path) == ["one"] * 4
    assert run(["log-dirs", "balance", path, "--within", "50", "--json"]) == 0
    plan = capsys.readouterr().out
    assert {each["replicas"][0] for each in json.loads(plan)["partitions"]} == {1}
    file = tmp_path / "plan.json"
    file.write_text(plan)
    given = ["kafka-reassign-partitions.sh", "--bootstrap-server", path]
    given += ["--reassignment-json-file", str(file)]
    assert run([*given, "--verify"]) == 0
    assert "is not being moved from log dir" in capsys.readouterr().out
    assert run([*given, "--execute", "--replica-alter-log-dirs-throttle", "50000000"]) == 0
    said = capsys.readouterr().out
    back = said.splitlines()[2]
    assert "Successfully started partition reassignments for t-" in said
    assert said.count("Moved t-") == 2
    assert sorted(dirs_of(path)) == ["one", "one", "three", "two"]
    assert run([*given, "--verify"]) == 0
    assert capsys.readouterr().out.count("completed successfully") == 2
    assert run(["log-dirs", "balance", path, "--within", "50"]) == 0  # nothing is left to do
    assert "All is even: nothing is to move." in capsys.readouterr().out
    file.write_text(back)  # the rollback
    assert run([*given, "--execute"]) == 0
    assert dirs_of(path) == ["one"] * 4
    capsys.readouterr()
    assert run(["log-dirs", "balance", path, "--within", "50", "--execute", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 2
    assert sorted(dirs_of(path)) == ["one", "one", "three", "two"]


def test_moves_that_wait(disks: list[str], capsys: Capture, tmp_path: Path) -> None:
    path = ",".join(disks)
    assert run(["log-dirs", "moves", path]) == 0
    assert capsys.readouterr().out == "Nothing is to move.\n"
    with sparklog.open(path, "rw") as log:  # as an endpoint or a killed command leaves them
        asked = [MoveRequest("t", 0, disks[1]), MoveRequest("t", 1, disks[2], 9e6)]
        home_of(log).moves.ask(asked)
    assert run(["log-dirs", path, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["brokers"][0]["logDirs"]
    assert shown[1]["partitions"] == [
        {"partition": "t-0", "size": 0, "offsetLag": 300, "isFuture": True}
    ]
    assert run(["log-dirs", "moves", path]) == 0
    said = capsys.readouterr().out
    assert "waiting" in said and f"Nobody is at it; to go on: sparklog log-dirs move {path}" in said
    assert run(["log-dirs", "moves", path, "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)
    assert (first["target"], first["offset_lag"], second["limit"]) == (disks[1], 300, 9e6)
    file = tmp_path / "plan.json"
    wanted = {"topic": "t", "partition": 0, "replicas": [1], "log_dirs": [disks[1]]}
    file.write_text(json.dumps({"version": 1, "partitions": [wanted]}))
    given = ["reassign-partitions", path, "--reassignment-json-file", str(file)]
    assert run([*given, "--verify"]) == 0
    assert "Reassignment of replica t-0-1 is still in progress." in capsys.readouterr().out
    assert run(["reassign-partitions", path, "--list"]) == 0
    assert f"t-0: from log dir {disks[0]} to {disks[1]}, 0 of" in capsys.readouterr().out
    assert run([*given, "--cancel"]) == 0
    assert "Successfully cancelled moves for: t-0-1" in capsys.readouterr().out
    assert run(["log-dirs", "move", path]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"Moved t-1 from {disks[0]} to {disks[2]}")
    with sparklog.open(path, "rw") as log:
        home_of(log).moves.ask([MoveRequest("t", 2, disks[1])])
    assert run(["log-dirs", "cancel", path, "--topic", "t", "--partition", "3"]) == 0
    assert run(["log-dirs", "cancel", path]) == 0
    assert capsys.readouterr().out == "Cancelled 0 moves.\nCancelled 1 move.\n"
    assert run(["log-dirs", "move", path]) == 0
    assert capsys.readouterr().out == "Nothing is to move.\n"
    assert dirs_of(path) == ["one", "three", "one", "one"]


def test_two_commands_at_once(disks: list[str], capsys: Capture) -> None:
    """The second waits for the first, which does what both want."""
    path = ",".join(disks)
    codes: list[int] = []

    def second() -> None:
        given = ["--topic", "t", "--partition", "1", "--to", disks[2]]
        codes.append(run(["log-dirs", "move", path, *given]))

    with sparklog.open(path, "rw") as log:
        home_of(log).moves.ask([MoveRequest("t", 0, disks[1], 1e6)])
        thread = threading.Thread(target=second)

        def told(*_: int) -> None:
            if not thread.ident:
                thread.start()

        home_of(log).moves.carry_out(progress=told)
        thread.join()
    assert codes == [0]
    assert dirs_of(path) == ["two", "three", "one", "one"]


def test_a_move_that_fails_is_tried_no_more(
    disks: list[str], capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = ",".join(disks)
    (segment,) = Path(disks[0], "t-0").glob("*.log")
    raw = bytearray(segment.read_bytes())
    raw[-3] ^= 1
    segment.write_bytes(raw)
    given = ["--topic", "t", "--partition", "0", "--to", disks[1]]
    assert run(["log-dirs", "move", path, *given]) == 1
    assert "stays where it is, nothing was moved" in capsys.readouterr().err
    raw[-3] ^= 1
    segment.write_bytes(raw)
    assert run(["log-dirs", "moves", path]) == 0
    assert capsys.readouterr().out == "Nothing is to move.\n"
