"""`sparklog checkpoint` as users and scripts meet it."""

import json
import re
from pathlib import Path

import pytest

from sparklog.checkpoint import import_
from sparklog.checkpoint.log_backed.lock import CheckpointLock
from sparklog.cli.app import run
from sparklog.fs import LOCAL
from tests.checkpoint.conftest import Golden, golden, impatient, unpacked

__all__ = ["golden", "impatient", "unpacked"]  # the fixtures
Capture = pytest.CaptureFixture[str]


def test_history(golden: Golden, capsys: Capture) -> None:
    path = str(golden("join"))
    assert run(["checkpoint", "history", path]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"{path} (files), query ")
    assert "80" in text  # rows of both sources
    assert re.search(r" 0 +\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ +\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ ", text)
    assert "no: the batch is not committed" in text
    assert run(["checkpoint", "history", path, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [b["can_go_back"] for b in found["batches"]] == [True] * 6 + [False]
    assert found["query_name"] is None
    sink = {"class": "NoopTable$", "description": "noop-table"}
    note = Path(path) / "sparklog.query"
    note.write_text(json.dumps({"name": "totals", "sink": sink}))
    assert run(["checkpoint", "history", path]) == 0
    assert f"query totals ({found['query_id']})" in capsys.readouterr().out


def test_verify(golden: Golden, capsys: Capture) -> None:
    path = golden("hdfs")
    assert run(["checkpoint", "verify", str(path)]) == 0
    assert capsys.readouterr().out.endswith("ok: nothing found\n")
    delta = path / "state/0/0/12.delta"
    delta.write_bytes(delta.read_bytes()[:30])
    assert run(["checkpoint", "verify", str(path)]) == 1
    text = capsys.readouterr().out
    assert "state/0/0/12.delta" in text
    assert "NOT OK: " in text
    assert run(["checkpoint", "verify", str(path), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["ok"] is False


def test_fork_and_reset(golden: Golden, tmp_path: Path, capsys: Capture) -> None:
    path, new = str(golden("hdfs")), str(tmp_path / "new")
    assert run(["checkpoint", "fork", path, new, "--to", "11"]) == 0
    assert capsys.readouterr().out.startswith(f"{new} continues after batch 11 of {path}: ")
    assert run(["checkpoint", "reset", new, "--to", "9", "--dry-run"]) == 0
    assert "would go back to batch 9: drops batches 10..11" in capsys.readouterr().out
    assert run(["checkpoint", "reset", new, "--to", "2100-01-01", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["batch"] == 11
    assert run(["checkpoint", "reset", new, "--to", "9", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["batches"] == [10, 11]


def test_import_and_export(golden: Golden, capsys: Capture) -> None:
    path = str(golden("stateless"))
    assert run(["checkpoint", "import", path]) == 0
    assert f"{path}: 14 files became records" in capsys.readouterr().out
    assert run(["checkpoint", "export", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"] == 14


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["history", "{}/state"], 2, "is not the checkpoint"),
        (["reset", "{}", "--to", "3"], 2, "the earliest possible batch is 8"),
        (["reset", "{}", "--to", "soon"], 2, "must be a batch, offsets as JSON or an ISO time"),
        (["reset", "{}", "--to", '{"t"'], 2, "is not JSON"),
        (["reset", "{}", "--to", '{"t": {"a": null}}'], 2, "must have the form {'offsets': {"),
        (["reset", "{}", "--to", "9" * 5000], 2, "must be a batch, offsets as JSON"),
        (["reset", "{}"], 2, "Missing option '--to'"),
        (["fork", "{}", "{}/x", "--to", "9"], 2, "are nested"),
        (["fork", "{}", "{}-x", "--to", "9", "--source", "x"], 2, "must have the form NAME=PATH"),
    ],
)
def test_wrong_use(
    golden: Golden, capsys: Capture, arguments: list[str], code: int, says: str
) -> None:
    path = str(golden("hdfs"))
    assert run(["checkpoint", *(a.replace("{}", path) for a in arguments)]) == code
    said = " ".join(capsys.readouterr().err.split())
    assert says in said
    assert "Traceback" not in said


def test_a_running_query_is_1(golden: Golden, capsys: Capture) -> None:
    path = golden("stateless")
    import_(path)
    with CheckpointLock(LOCAL, str(path / "sparklog")) as lock:
        lock.take_running("run")
        assert run(["checkpoint", "reset", str(path), "--to", "9"]) == 1
    assert "stop the query, then reset it" in capsys.readouterr().err
