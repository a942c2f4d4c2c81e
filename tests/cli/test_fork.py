"""`sparklog fork` as users and scripts meet it."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog.cli.app import run
from sparklog.clock import ManualClock
from sparklog.log.commit import Identity
from sparklog.storage.staging import Framing

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def log(tmp_path: Path, clock: ManualClock) -> Path:
    """Four micro-batches of two records each, one a second."""
    with sparklog.open(tmp_path / "log", "rw", clock=clock) as log:
        log.create_topic("t")
        for batch in range(4):
            clock.advance(1000)
            stager = log.stager(Framing())
            stager.add(log.topic("t"), pa.table({"value": ["x", "y"]}).to_batches()[0])
            identity = Identity(writer="q", batch=batch, fingerprint=f"{batch}")
            log.commit(stager.finish(), identity=identity)
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
        (["--writer", "q"], "belong together"),
        ([], "say where to fork"),
        (["--time", "yesterday"], "want an ISO time"),
        (["--offsets", "[1]"], "want JSON as"),
    ],
)
def test_wrong_use_is_2(log: Path, capsys: Capture, way: list[str], words: str) -> None:
    assert run(["fork", str(log), f"{log.parent}/new", *way]) == 2
    assert words in capsys.readouterr().err
    assert not (log.parent / "new").exists()
