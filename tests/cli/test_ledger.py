"""`sparklog commits`."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog.cli.app import run
from sparklog.clock import ManualClock
from sparklog.log.commit import Identity, QueryIdentity
from sparklog.storage.query_origin import QueryOrigin
from sparklog.storage.staging import Framing

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def log(tmp_path: Path, clock: ManualClock) -> str:
    """Two batches each of writers q/a and q/b, one append."""
    path = str(tmp_path / "log")
    with sparklog.open(path, "rw", clock=clock) as log:
        log.create_topic("t", 2)
        log.create_topic("other")
        for batch in range(2):
            for writer in ("q/a", "q/b"):
                clock.advance(1000)
                stager = log.stager(Framing())
                for p in (0, 1):
                    rows = pa.table({"value": ["x", "y"]}).to_batches()[0]
                    stager.add(log.topic("t"), rows, partition=p)
                origin = QueryOrigin(name="hourly totals") if writer == "q/b" else None
                known = {} if origin is None else {"origin": origin}
                kind = QueryIdentity if known else Identity
                identity = kind(writer=writer, batch=batch, fingerprint="f", **known)
                log.commit(stager.finish(), identity=identity)
        log.append("other", pa.table({"value": ["x"]}))
    return path


def documents(capsys: Capture, *arguments: str) -> list[dict[str, object]]:
    assert run([*arguments, "--json"]) == 0
    found: list[dict[str, object]] = json.loads(capsys.readouterr().out)
    return found


def test_commits(log: str, capsys: Capture, clock: ManualClock) -> None:
    rows = documents(capsys, "commits", log)
    assert len(rows) == 9
    assert rows[-1] | {"offset": 0} == {
        "offset": 0, "time": clock(), "kind": "append", "writer": None, "batch": None,
        "query": None, "fingerprint": None, "topic": "other", "partition": 0, "first": 0, "end": 1,
    }  # fmt: skip
    mine = documents(capsys, "commits", log, "--writer", "q/b", "--last", "1")
    assert [(r["batch"], r["partition"], r["first"], r["end"]) for r in mine] == [
        (1, 0, 6, 8), (1, 1, 6, 8),
    ]  # fmt: skip
    assert len(documents(capsys, "commits", log, "--writer", "q")) == 8
    assert len(documents(capsys, "commits", log, "--topic", "other")) == 1
    assert run(["commits", log, "--writer", "q/a", "--last", "1"]) == 0
    assert " commit   q/a          1   t               0       4     6 " in capsys.readouterr().out
    assert {r["query"] for r in mine} == {"hourly totals"}
    assert run(["commits", log, "--writer", "q/b", "--last", "1"]) == 0
    assert " commit   hourly totals   q/b " in capsys.readouterr().out
    assert run(["commits", log, "--writer", "nobody"]) == 0
    assert capsys.readouterr().out == "the ledger has no commit of these\n"


def test_no_log(tmp_path: Path) -> None:
    assert run(["commits", str(tmp_path / "none")]) != 0
