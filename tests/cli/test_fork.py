"""`sparklog fork` as users and scripts meet it."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog.cli.app import run
from sparklog.clock import ManualClock
from tests.micro_batches import commit_batch
from tests.service.logs import SMALL, fill
from tests.tiered.buckets import DictStore, copy_partition

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def log(tmp_path: Path, clock: ManualClock) -> Path:
    """Four micro-batches of two records each, one a second."""
    with sparklog.open(tmp_path / "log", "rw", clock=clock) as log:
        log.create_topic("t")
        for batch in range(4):
            clock.advance(1000)
            commit_batch(log, "q", batch, pa.table({"value": ["x", "y"]}))
    return tmp_path / "log"


def test_for_people(log: Path, capsys: Capture) -> None:
    new = f"{log.parent}/new"
    assert run(["fork", str(log), new, "--writer", "q", "--batch", "1"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("t-0: offsets [0, 4)\nwriter q: batch 1\n")
    assert f"{new}: leader epoch 1, " in out
    assert sparklog.open(new).offsets("t") == {0: (0, 4)}


def test_for_scripts(log: Path, clock: ManualClock, capsys: Capture) -> None:
    when = datetime.fromtimestamp((clock() - 1000) / 1000, UTC).replace(tzinfo=None).isoformat()
    ways = {"a": ("--time", when), "b": ("--offsets", '{"t": {"0": 7}}')}
    for name, way in ways.items():
        assert run(["fork", str(log), f"{log.parent}/{name}", *way, "--json"]) == 0
        made = json.loads(capsys.readouterr().out)
        assert made["offsets"] == {"t": {"0": [0, 6]}}
        assert made["writers"] == {"q": 2}
        assert made["time"] == clock() - 1000


@pytest.mark.parametrize(
    ("way", "words"),
    [
        (["--writer", "q", "--batch", "9"], "no commit of batch 9"),
        (["--writer", "q"], "require each other"),
        ([], "pass exactly one fork point"),
        (["--time", "yesterday"], "an ISO time"),
        (["--offsets", "[1]"], "must be JSON"),
    ],
)
def test_wrong_use_is_2(log: Path, capsys: Capture, way: list[str], words: str) -> None:
    assert run(["fork", str(log), f"{log.parent}/new", *way]) == 2
    assert words in capsys.readouterr().err
    assert not (log.parent / "new").exists()


def test_in_a_store(tmp_path: Path, capsys: Capture) -> None:
    """A tier becomes a log, and that log is forked, by the store's own copies."""
    with sparklog.open(tmp_path / "log", "rw") as log:
        log.create_topic("t", config=SMALL)
        fill(log, "t", 0, 30)
    held = DictStore()
    copy_partition(tmp_path / "log" / "t-0", held, config=SMALL)
    for name, data in held.objects.items():
        (tmp_path / "tier" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tier" / name).write_bytes(data)
    tier, new, forked = (f"file://{tmp_path}/{name}" for name in ("tier", "new", "forked"))
    restore = ["tier", "restore", tier, new]
    assert run([*restore, "--dry-run"]) == 0
    assert "would be copied" in capsys.readouterr().out
    assert not (tmp_path / "new" / "sparklog.home").exists()
    assert run([*restore, "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    (start, end) = made["offsets"]["t"]["0"]
    assert start == 0 < end
    assert made["epoch"] > 1 << 16
    assert run(restore) == 2
    assert "a log already" in capsys.readouterr().err
    assert run([*restore[:3], f"{new}-2", "--start", "2013-01-01"]) == 2
    capsys.readouterr()
    point = json.dumps({"t": {"0": end}})
    assert run(["fork", new, forked, "--offsets", point]) == 0
    assert f"t-0: offsets [0, {end})\n" in capsys.readouterr().out
    assert run(["fork", new, str(tmp_path / "dir"), "--offsets", point]) == 2
    assert "must have the same kind of home" in capsys.readouterr().err


def test_a_log_in_a_store_becomes_a_log_dir_and_back(tmp_path: Path, capsys: Capture) -> None:
    url, path, back = f"file://{tmp_path}/home", f"{tmp_path}/dir", f"file://{tmp_path}/back"
    with sparklog.open(url, "rw") as log:
        log.create_topic("t", partitions=2)
        log.create_topic("u")
        for number in range(4):
            log.append("t", pa.table({"key": [f"k{number}"], "value": [f"v{number}"]}))
        log.append("u", pa.table({"value": ["w"]}))
        log.delete_records("u", {0: 1})
        log.append("u", pa.table({"value": ["x"]}))
    restore = ["tier", "restore", url, path, "--topic", "t", "--topic", "u"]
    assert run([*restore, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["records"] == 5
    with sparklog.open(url, "rw") as log:
        log.append("u", pa.table({"value": ["y"]}))
        rows = {topic: log.read(topic).read_all() for topic in ("t", "u")}
        spans = {topic: log.offsets(topic) for topic in ("t", "u")}
    assert run(restore) == 0  # it goes on
    assert "1 record in" in capsys.readouterr().out
    assert run([*restore, "--start", '{"0": 1}']) == 2
    assert run(["tier", "restore", url, path]) == 2  # the whole log wants a new directory
    assert run([*restore, "--topic", "nobody"]) == 2
    for topic in ("t", "u"):
        assert run(["export", path, "--topic", topic, "--to", back]) == 0
    for place in (path, back):
        with sparklog.open(place) as log:
            assert {topic: log.offsets(topic) for topic in ("t", "u")} == spans
            assert all(log.read(t).read_all().equals(rows[t]) for t in ("t", "u"))
