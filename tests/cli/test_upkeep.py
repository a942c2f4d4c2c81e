"""`sparklog serve --once --task retain` and `--task compact`."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog.cli.app import run
from sparklog.service import Service

Capture = pytest.CaptureFixture[str]
RETAIN = ["serve", "--once", "--task", "retain"]
COMPACT = ["serve", "--once", "--task", "compact"]


@pytest.fixture
def log(tmp_path: Path) -> str:
    """c: compacted, 3 segments of 8 keys; d: 3 segments that are older than their retention."""
    path = str(tmp_path / "log")
    with sparklog.open(path, "rw") as log:
        small = {"segment.bytes": 1 << 20}
        log.create_topic("c", config={**small, "cleanup.policy": "compact"})
        log.create_topic("d", config={**small, "retention.ms": 1000})
        old = pa.array([1_000 + n for n in range(16)], pa.timestamp("ms", tz="UTC"))
        for _ in range(3):
            keys = [f"k{n % 8}" for n in range(16)]
            values = [bytes([n]) * 60_000 for n in range(16)]
            log.append("c", pa.table({"key": keys, "value": values}))
            log.append("d", pa.table({"value": values, "timestamp": old}))
    return path


def test_compact(log: str, capsys: Capture) -> None:
    assert run([*COMPACT, log, "--dry-run"]) == 0
    assert "bytes, would be compacted" in capsys.readouterr().out
    assert run([*COMPACT, log, "--topic", "c", "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    (one,) = done["cleaned"]
    assert (one["topic"], one["keys"], one["records_kept"]) == ("c", 8, 8)
    assert one["bytes_before"] > 2 * one["bytes_after"] > 0
    with sparklog.open(log) as opened:
        assert opened.read("c").read_all().num_rows == 8 + 16  # and the active segment
        assert opened.offsets("d") == {0: (0, 48)}  # nothing else was done
    assert run([*COMPACT, log]) == 0
    assert capsys.readouterr().out == f"{log}: nothing to do\n"


def test_compact_however_clean(log: str, capsys: Capture) -> None:
    """The service would leave it alone by min.cleanable.dirty.ratio."""
    with sparklog.open(log, "rw") as opened:
        opened.alter_topic("c", config={"min.cleanable.dirty.ratio": "1"})
    with Service(log) as service:
        assert not service.run_once().cleaned
    assert run([*COMPACT, log]) == 0
    assert "c-0: compacted " in capsys.readouterr().out


def test_what_cannot_be_compacted(log: str, capsys: Capture) -> None:
    for topic, words in (("d", "d is not compacted: its cleanup.policy is delete"), ("x", "x is")):
        assert run([*COMPACT, log, "--topic", topic]) == 2
        assert words in capsys.readouterr().err
    assert run([*COMPACT, f"{log}/none"]) == 2


def test_retain(log: str, capsys: Capture) -> None:
    assert run([*RETAIN, log, "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert out.count(" would be deleted by retention.ms: ") == 3
    with sparklog.open(log) as opened:
        assert opened.offsets("d") == {0: (0, 48)}
    assert run([*RETAIN, log, "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert [(gone["topic"], gone["log_start"]) for gone in done["deleted"]] == [("d", 48)]
    assert not done["cleaned"]
    with sparklog.open(log) as opened:
        assert opened.offsets("d") == {0: (48, 48)}
        assert opened.read("c").read_all().num_rows == 48  # nothing else was done
    assert run([*RETAIN, log]) == 0
    assert capsys.readouterr().out == f"{log}: nothing to do\n"


def test_retain_of_a_tiered_topic(tmp_path: Path, capsys: Capture) -> None:
    """What has a copy goes here, copies that are due go there; what has none stays, and is told."""
    path, bucket = str(tmp_path / "log"), f"file://{tmp_path / 'bucket'}"
    tiered = {"internal.segment.bytes": 200, "remote.storage.enable": True}
    with sparklog.open(path, "rw") as log:
        log.create_topic("t", config={**tiered, "local.retention.bytes": 0})
        log.append("t", pa.table({"value": [b"x" * 100]}))
        log.append("t", pa.table({"value": [b"x" * 100]}))
    assert run([*RETAIN, path]) == 0  # it has no remote storage yet
    assert capsys.readouterr().out == f"{path}: nothing to do\n"
    assert run(["serve", path, "--remote", bucket, "--once"]) == 0
    words = capsys.readouterr().out
    assert words.index("copied to remote storage") < words.index("deleted here by")
    with sparklog.open(path, "rw") as log:
        log.alter_topic("t", config={"retention.bytes": 0})
        log.append("t", pa.table({"value": [b"x" * 100]}))
    assert run([*RETAIN, path, "--dry-run", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert run([*RETAIN, path]) == 0
    out = capsys.readouterr().out
    assert "170 bytes of closed segments wait for their copy" in out
    assert "offsets [0, 1), 170 bytes, removed from remote storage by retention.bytes" in out
    assert [copy["end"] for copy in plan["removed"]] == [1]
    assert not plan["uploaded"]
    with sparklog.open(path) as log:
        assert log.offsets("t") == {0: (1, 3)}
    assert run(["serve", path, "--once"]) == 0
    assert "offsets [1, 2), 170 bytes, copied to remote storage" in capsys.readouterr().out


def test_a_service_has_the_say(log: str, capsys: Capture) -> None:
    with Service(log, options={"log.initial.task.delay.ms": 3_600_000}) as service:
        service.tick()
        assert run([*RETAIN, log]) == 1
        assert "does the background work; standing by" in capsys.readouterr().out
        assert run(["serve", log, "--once"]) == 1
        assert "standing by" in capsys.readouterr().out
    assert run([*RETAIN, log, "--option", "log.nonsense=1"]) == 2
