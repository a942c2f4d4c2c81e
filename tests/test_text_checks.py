"""Names that Python can hold and no log can: refused where they come in, by every door."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sparklog
from sparklog import checkpoint
from sparklog.cli.app import run
from sparklog.errors import InvalidRequestError
from sparklog.log.commit import Identity
from sparklog.service import Service, erase, verify
from sparklog.service.health import examine
from sparklog.sink import SegmentSink

HALF = "a\ud800b"
ROWS = pa.table({"value": ["v"]})


@pytest.mark.parametrize("home", ["dir", "store"])
def test_a_ledger_takes_no_half_surrogates(tmp_path: Path, home: str) -> None:
    path = f"file://{tmp_path}/log" if home == "store" else str(tmp_path / "log")
    with sparklog.open(path, "rw") as log:
        log.create_topic("t")
        calls: list[Callable[[], Any]] = [
            lambda: log.commit([], app=HALF),
            lambda: log.commit([], source={"rate": HALF}),
            lambda: log.commit([], source={HALF: 1}),
            lambda: log.commit([], identity=Identity(writer=HALF, batch=0, fingerprint="f")),
            lambda: log.read("t", group=HALF),
            lambda: log.commit_offsets(HALF, {"t": {0: 0}}),
            lambda: log.create_topic(HALF),
        ]
        for call in calls:
            with pytest.raises(InvalidRequestError, match=r"ud800"):
                call()
        log.append("t", ROWS)
        assert log.commits().num_rows == 1, "nothing that can't be shown is in the ledger"


@pytest.mark.parametrize("option", ["name", "writerId"])
def test_a_sink_refuses_such_a_name_before_the_first_micro_batch(
    tmp_path: Path, option: str
) -> None:
    text = rf"{option} 'a\\ud800b' contains half a surrogate"
    with pytest.raises(InvalidRequestError, match=text):
        SegmentSink(tmp_path / "log", "t", **{option: HALF})


@pytest.mark.parametrize(
    "call",
    [
        lambda path: sparklog.open(path, "rw"),
        sparklog.open,
        verify,
        examine,
        Service,
        lambda path: erase(path, "t", [b"k"]),
        checkpoint.history,
    ],
    ids=["write", "read", "verify", "examine", "service", "erase", "history"],
)
@pytest.mark.parametrize(
    ("name", "why"),
    [
        (HALF, "no file name can contain"),
        ("nul\0", "contains a null character"),
        (b"bytes", "os.fsdecode converts bytes to text"),
    ],
)
def test_what_is_no_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Any, name: Any, why: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidRequestError, match=why):
        call(name)
    assert os.listdir(tmp_path) == []


def test_a_url_is_text() -> None:
    with pytest.raises(InvalidRequestError, match=r"the URL 's3://bucket/.*half a surrogate"):
        sparklog.open("s3://bucket/\udcff")  # a name of a file may hold that


@pytest.mark.parametrize(
    "name",
    ["end.", "n" * 255, "new\nline", "tab\tin", os.fsdecode(b"\xff\xfe"), "\u202eevil", "quo'te"],
    ids=["dot", "longest", "newline", "tab", "no UTF-8", "bidirectional", "quote"],
)
def test_odd_names_of_directories_work(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    path = tmp_path / name
    with sparklog.open(path, "rw") as log:
        log.create_topic("t")
        log.append("t", ROWS)
        assert log.read("t").read_all().num_rows == 1
    assert verify(path).ok
    capfd.readouterr()
    assert run(["status", str(path)]) == 0
    assert run(["topics", "list", str(path)]) == 0
    said = "".join(capfd.readouterr())
    assert "\u202e" not in said
    assert said.startswith("green: ")
