"""Files and values that nobody should give: each is refused in a sentence, none ends in a trace."""

from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog.cli.app import run

DEEP = b"[" * 200_000
DEEP_OBJECT = b'{"a":' * 200_000
DIGITS = "9" * 5000
Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("inputs") / "log")
    with sparklog.open(path, "rw", options={"flush": "none"}) as log:
        log.create_topic("t", 2)
        log.append("t", pa.table({"key": ["a", "b"], "value": ["1", "2"]}), partition=0)
        log.commit_offsets("g", {"t": {0: 0}})
    return path


def refused(capsys: Capture, *arguments: str) -> str:
    """What is said of a call that is refused."""
    assert run(arguments) == 2
    found = capsys.readouterr().err
    assert len(found) < 6000
    assert "Traceback" not in found
    return found


RESET = ("readers", "reset", "LOG", "--group", "g", "--from-file", "FILE")
ERASE = ("erase", "LOG", "--topic", "t", "--dry-run")
PRODUCE = ("produce", "LOG", "FILE", "--topic", "t", "--format", "json")
MOVE = ("log-dirs", "move", "LOG", "--reassignment-json-file", "FILE")
DELETE = ("delete-records", "LOG", "--offset-json-file", "FILE")
ALTER = ("configs", "alter", "LOG", "--topic", "t", "--add-config-file", "FILE")


@pytest.mark.parametrize(("held", "command"), [
    *((DEEP, each) for each in (RESET, (*ERASE, "--keys-json", "FILE"), PRODUCE, DELETE, ALTER)),
    (DEEP_OBJECT, DELETE),
    (b"t" * (1 << 18) + b",0,1", RESET), (b'"t,0,1', RESET), (b"t,0," + DIGITS.encode(), RESET),
    (b"../../etc,0,1", RESET), (b"t\0,0,1", RESET), (b"\xff\xfe", RESET), (b"\xff", ALTER),
    (f"retention.ms={DIGITS}".encode(), ALTER),
    (b'["\\ud800"]', (*ERASE, "--keys-json", "FILE")),
    ('[{"base64": "é"}]'.encode(), (*ERASE, "--keys-json", "FILE")),
    (b"null\n", PRODUCE), (b'{"value": "a"}\n null\n', PRODUCE), (b'{"value":"}"} null', PRODUCE),
    (b'{"value":\n"a"}null', PRODUCE), (b"[NaN]", PRODUCE), (b'{"value": "\\ud800"}', PRODUCE),
    (b'{"partitions": [{"topic": "t", "partition": 0, "offset": 1e999}]}', DELETE),
])  # fmt: skip
def test_files(
    log: str, tmp_path: Path, held: bytes, command: tuple[str, ...], capsys: Capture
) -> None:
    file = tmp_path / "file"
    file.write_bytes(held)
    given = {"LOG": log, "FILE": str(file)}
    refused(capsys, *(given.get(word, word) for word in command))
    with sparklog.open(log) as opened:
        assert opened.offsets("t") == {0: (0, 2), 1: (0, 0)}


@pytest.mark.parametrize("held", [DEEP, b"\xff", b'{"partitions": [{"topic": "t", "partition": '
                         b'1e999, "log_dirs": ["/x"]}]}'])  # fmt: skip
def test_reassignments(log: str, tmp_path: Path, held: bytes, capsys: Capture) -> None:
    file = tmp_path / "file"
    file.write_bytes(held)
    other = str(tmp_path / "other")
    refused(capsys, "log-dirs", "move", f"{log},{other}", *MOVE[3:-1], str(file))


@pytest.mark.parametrize("arguments", [
    (*ERASE, "--key", "a", "--before", "²"), (*ERASE, "--key", "a", "--before", DIGITS),
    (*ERASE, "--key-base64", "é"),
    ("consume", "LOG", "--topic", "t", "--partition", "0", "--offset", DIGITS),
    ("consume", "LOG", "--topic", "t", "--offset", "-" + DIGITS),
    ("readers", "reset", "LOG", "--group", "g", "--topic", "t:" + DIGITS, "--to-latest"),
    ("configs", "alter", "LOG", "--topic", "t", "--add-config", "retention.ms=" + DIGITS),
    ("topics", "undelete", "LOG", "--topic", "../t"), ("topics", "create", "LOG", "--topic", ".."),
    ("topics", "describe", "LOG", "--topic", "x" * 100_000),
    ("commits", "LOG", "--writer", "\udcff"), ("fork", "LOG", "x", "--writer", "\udcff"),
    ("produce", "LOG", "--topic", "t", "--batch", "1", "--writer", "\udcff"),
])  # fmt: skip
def test_values(log: str, arguments: tuple[str, ...], capsys: Capture) -> None:
    refused(capsys, *(log if word == "LOG" else word for word in arguments))


def test_keys_are_the_bytes_that_were_given(tmp_path: Path, capsys: Capture) -> None:
    """Who erases must not miss a key, nor erase another: by a BOM, CRLF, CR in a key, no UTF-8."""
    path, file = str(tmp_path / "log"), tmp_path / "keys"
    keys = [b"first", b"a", b"b\rc", b"b", b"\xff", b"last"]
    with sparklog.open(path, "rw", options={"flush": "none"}) as log:
        log.create_topic("t")
        log.append("t", pa.table({"key": keys, "value": keys}))
    file.write_bytes(b"\xef\xbb\xbffirst\r\nb\rc\r\nlast")
    assert run(["erase", path, "--topic", "t", "--key-file", str(file), "--key", "\udcff"]) == 0
    capsys.readouterr()
    with sparklog.open(path) as log:
        left = log.read("t", columns=["key"]).read_all()["key"].to_pylist()
    assert left == [b"a", b"b"]
