"""Offline partitions that their owner gives up: what is lost is said, and no offset comes twice."""

import json
import shutil
from pathlib import Path

import pytest

import sparklog
from sparklog.cli.app import run
from sparklog.service import verify
from tests.logdir.test_offline_partitions import KEYED, ONE, counts, make, mount, path_of, unmount


def test_a_disk_that_is_lost(tmp_path: Path) -> None:
    _a, b = dirs = make(tmp_path)
    kept = unmount(b)
    with sparklog.open(path_of(dirs), "rw") as log:
        start, end = log.offsets("t")[1]
        told = log.give_up(dry_run=True)
        assert log.offline()
        assert log.give_up() == told
        assert [(g.topic, g.partition, g.first, g.end, g.kept) for g in told] == [
            ("t", 1, start, end, False), ("u", 1, 0, 1, False),
        ]  # fmt: skip
        assert str(b / "t-1") == told[0].directory
        assert log.offline() == {}
        assert log.offsets("t")[1] == (end, end)
        assert log.append("t", ONE, partition=1) == {"t": {1: (end, end + 1)}}
        with pytest.raises(sparklog.OffsetOutOfRangeError):
            log.read("t", start={1: 0, 0: 0})
    assert verify(path_of(dirs)).ok
    with sparklog.open(path_of(dirs), "rw") as log:  # the empty dir is a new one of the log's
        made = log.create_topic("new", partitions=4)
        assert b in {Path(path).parent for path in made.dirs.values()}
        log.append("new", KEYED)
    old = b.with_name("b-new")
    b.rename(old)
    mount(b, kept)  # the lost one turns up: it isn't taken for the one in use
    with sparklog.open(path_of(dirs)) as log:
        assert log.offsets("t")[1] == (end, end + 1)
        assert {key[0] for key in log.offline()} == {"new"}
        assert "given up" in str(next(iter(log.offline().values())))
        assert "move it away, and name the directory that replaced it" in str(log.offline())
    b.rename(b.with_name("away"))
    old.rename(b)
    with sparklog.open(path_of(dirs), "rw") as log:
        assert not log.offline()
        log.append("new", KEYED)
    assert verify(path_of(dirs)).ok


def test_the_first_segments(tmp_path: Path) -> None:
    _a, b = dirs = make(tmp_path)
    before = counts(dirs)
    bases = sorted(int(file.stem) for file in (b / "t-1").glob("*.log"))
    (b / "t-1" / f"{0:020}.log").unlink()
    with sparklog.open(path_of(dirs), "rw") as log:
        (told,) = log.give_up("t", [1])
        assert (told.first, told.end, told.kept) == (0, bases[1], True)
        with pytest.raises(sparklog.InvalidRequestError, match="is not offline"):
            log.give_up("t", [0])
        newest = max((_a / "t-0").glob("*.log"))
        whole = newest.read_bytes()
        newest.write_bytes(whole[:-5])
        assert log.give_up("t", []) == []  # nothing was asked for, so nothing is looked at
        assert not log.offline()
        newest.write_bytes(whole)
        log.append("t", ONE, partition=1)
    assert counts(dirs) == {0: before[0], 1: before[1] - bases[1] + 1}
    assert verify(path_of(dirs)).ok


@pytest.mark.parametrize("crash", [False, True], ids=["closed", "crashed"])
def test_the_last_segment(tmp_path: Path, crash: bool) -> None:
    """What is left is kept, as a stray."""
    a, b = dirs = make(tmp_path, crash=crash)
    if crash:
        (a / "sparklog.lock").unlink()
    max((b / "t-1").glob("*.log")).unlink()
    with sparklog.open(path_of(dirs), "rw") as log:
        end = log.offsets("t")[1][1]
        assert len(log.give_up()) == 1
        assert log.append("t", ONE, partition=1) == {"t": {1: (end, end + 1)}}
    assert len(list(b.glob("t-1.*-stray"))) == 1
    assert verify(path_of(dirs)).ok


@pytest.mark.parametrize("how", ["shorter", "longer"])
def test_a_dry_run_changes_nothing(tmp_path: Path, how: str) -> None:
    """A partition that was damaged since the log was opened is reported and left as it is.

    Bytes behind the committed end are no loss, so they are not reported.
    """
    a, _b = dirs = make(tmp_path)
    with sparklog.open(path_of(dirs), "rw") as log:
        log.append("t", ONE, partition=0)
        last = max((a / "t-0").glob("*.log"))
        whole = last.read_bytes()
        last.write_bytes(whole + b"garbage" if how == "longer" else whole[:-5])
        before = {file: file.read_bytes() for file in (a / "t-0").iterdir()}
        told = log.give_up(dry_run=True)
        assert {file: file.read_bytes() for file in (a / "t-0").iterdir()} == before
        assert log.offline() == {}
        assert [(g.topic, g.partition) for g in told] == [("t", 0)] * (how == "shorter")
        last.write_bytes(whole)  # it is restored, and was never offline
        log.append("t", ONE, partition=0)
        assert log.give_up() == []
    assert verify(path_of(dirs)).ok


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _a, b = dirs = make(tmp_path)
    shutil.rmtree(b)
    command = ["verify", path_of(dirs), "--give-up"]
    assert run([*command, "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "2 partitions" in out and "would be given up" in out
    assert "does not exist" in out
    assert run([*command, "--topic", "t", "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)
    assert (told["topic"], told["partition"], told["first"]) == ("t", 1, 0)
    assert run(command) == 0
    assert "1 partition, 1 offset: given up" in capsys.readouterr().out
    assert run(command) == 0
    assert capsys.readouterr().out == "No partition is offline.\n"
    for wrong in (["--repair"], ["--quick"], ["--batches"], ["--partition", "1"]):
        assert run([*command, *wrong]) == 2
    assert run(["verify", path_of(dirs), "--topic", "t"]) == 2
    assert verify(path_of(dirs)).ok
