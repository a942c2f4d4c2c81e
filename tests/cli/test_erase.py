"""`sparklog erase`: keys in every form, a rehearsal, the report, exit codes."""

import base64
import json
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog.cli.app import run

Capture = pytest.CaptureFixture[str]
ADA = "ada@example.com"  # no part of a random id
KEYS = [ADA.encode(), b"bob", b"cleo\xff", b"dan"]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log"
    with sparklog.open(path, "rw") as log:
        log.create_topic("t", 2)
        for partition in range(2):
            log.append("t", pa.table({"key": KEYS, "value": ["x"] * 4}), partition=partition)
    return path


def keys(log: Path) -> list[bytes]:
    with sparklog.open(log) as opened:
        found = opened.read("t", columns=["key"]).read_all()
    return sorted(found.column("key").to_pylist())


def erase(log: Path, *given: str) -> int:
    return run(["erase", str(log), "--topic", "t", *given])


def test_a_rehearsal_and_the_deed(log: Path, capsys: Capture) -> None:
    assert erase(log, "--key", ADA, "--dry-run") == 0
    said = capsys.readouterr().out
    assert "2 records would be erased" in said
    assert "not covered: " in said
    assert keys(log) == sorted(KEYS * 2)
    assert erase(log, "--key", ADA) == 0
    assert "t: 2 records erased" in capsys.readouterr().out
    assert keys(log) == sorted(KEYS[1:] * 2)
    assert erase(log, "--key", ADA) == 0
    assert "t: 0 records erased" in capsys.readouterr().out


def test_what_no_erasure_reaches_is_said_of_every_home(log: Path, capsys: Capture) -> None:
    """Forks, exports and checkpoints, of a log in a store too; and that keys alone are compared."""
    url = f"file://{log.parent}/store"
    with sparklog.open(url, "rw") as stored:
        stored.create_topic("t")
        stored.append("t", pa.table({"key": KEYS, "value": ["of ada"] * 4}))
    for path in (str(log), url):
        assert run(["erase", path, "--topic", "t", "--key", "x", "--dry-run"]) == 0
        said = capsys.readouterr().out
        assert "not covered: records with other keys, whatever their values and headers say" in said
        assert "not covered: copies that this log doesn't know of: backups and snapshots" in said
        assert "not covered: Spark's checkpoints and state" in said
        assert said.count("not covered: what writers stage and commit from now on") == 1


def test_keys_in_every_form(log: Path, tmp_path: Path, capsys: Capture) -> None:
    lines, listed = tmp_path / "lines", tmp_path / "keys.json"
    lines.write_bytes(f"{ADA}\n\n".encode())
    encoded = base64.b64encode(KEYS[2]).decode()
    listed.write_text(json.dumps(["bob", {"base64": encoded}]))
    assert erase(log, "--key-file", str(lines), "--keys-json", str(listed), "--partition", "1",
                 "--json") == 0  # fmt: skip
    report = json.loads(capsys.readouterr().out)
    assert report["records"] == 3
    assert report["complete"]
    assert len(report["keys_sha256"]) == 3
    assert ADA not in json.dumps(report)
    assert report["partitions"][0]["offsets"]["ranges"] == [[0, 3]]
    assert erase(log, "--key-base64", encoded, "--before", "2", "--partition", "0") == 0
    assert "t: 0 records" in capsys.readouterr().out
    assert erase(log, "--key-hex", KEYS[2].hex(), "--before", "2000-01-01") == 0
    assert "t: 0 records" in capsys.readouterr().out
    assert keys(log) == sorted([*KEYS, b"dan"])


def test_what_is_left_is_told(log: Path, capsys: Capture) -> None:
    (log / "sparklog-quarantine-20260101T000000Z-t-0-x.log").write_bytes(b"?")
    assert erase(log, "--key", ADA) == 1
    assert "left: " in capsys.readouterr().err
    assert erase(log, "--key", ADA, "--dry-run") == 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "no key is named"),
        (["--key-base64", "?"], "not base64"),
        (["--key-hex", "6g"], "not hexadecimal"),
        (["--key", "a", "--partition", "9"], "no partitions [9]"),
        (["--key", "a", "--before", "soon"], "soon"),
    ],
)
def test_what_is_refused(log: Path, given: list[str], said: str, capsys: Capture) -> None:
    assert erase(log, *given) == 2
    assert said in capsys.readouterr().err


def test_keys_that_are_no_list(log: Path, tmp_path: Path, capsys: Capture) -> None:
    for text in ("{}", "[1]", "?"):
        (tmp_path / "keys.json").write_text(text)
        assert erase(log, "--keys-json", str(tmp_path / "keys.json")) == 2
        assert "JSON array" in capsys.readouterr().err
