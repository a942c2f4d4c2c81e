"""`sparklog produce`: lines, JSON, CSV, Parquet; refused lines; the same input twice."""

import fcntl
import io
import json
import os
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

import sparklog
from sparklog.cli.app import run
from sparklog.tools.console import input_formats, producing
from tests.waiting import until

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = str(tmp_path / "log")
    with sparklog.open(path, "rw") as log:
        log.create_topic("t")
        log.create_topic("two", 2)
    return path


def held(log: str, topic: str = "t", *columns: str) -> list[Any]:
    with sparklog.open(log) as opened:
        rows = opened.read(topic, columns=columns or ["value"]).read_all().to_pylist()
    return [tuple(row.values()) if columns else row["value"] for row in rows]


def write(tmp_path: Path, data: bytes, name: str = "in") -> str:
    (tmp_path / name).write_bytes(data)
    return str(tmp_path / name)


def test_lines(log: str, tmp_path: Path, capsys: Capture) -> None:
    file = write(tmp_path, b"one\r\ntwo\n\nfour \xff")
    assert run(["produce", log, file, "--topic", "t"]) == 0
    assert held(log) == [b"one", b"two", b"", b"four \xff"]
    assert " t               0       0     4 " in capsys.readouterr().out


def test_lines_with_keys_and_headers(log: str, tmp_path: Path) -> None:
    file = write(tmp_path, b"a:1,b:\tk1\tv1\n\tk2\tv\t2\nc:x:y\tNULL\tNULL\n")
    given = "parse.key=true,parse.headers=true,null.marker=NULL"
    assert run(["produce", log, file, "--topic", "t", "--property", given]) == 0
    found = held(log, "t", "key", "value", "headers")
    assert [(key, value) for key, value, _ in found] == [
        (b"k1", b"v1"), (b"k2", b"v\t2"), (None, None),
    ]  # fmt: skip
    assert [[(h["key"], h["value"]) for h in headers] for _, _, headers in found] == [
        [("a", b"1"), ("b", b"")], [], [("c", b"x:y")],
    ]  # fmt: skip


def test_standard_input(log: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"k|v\n" * 3)))
    options = ["--property", "parse.key=true", "--property", "key.separator=|", "--json"]
    assert run(["produce", log, "--topic", "two", *options, "--compression-type", "zstd"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert (done["records"], done["commits"], done["replayed"]) == (3, 1, False)
    (span,) = done["offsets"].values()
    assert span == [0, 3]
    assert held(log, "two", "key", "value") == [(b"k", b"v")] * 3


def test_what_consume_prints_can_be_produced(
    log: str, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    header = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    with sparklog.open(log, "rw") as opened:
        rows = {
            "key": pa.array([b"a", None, b"\xff", b'"'], pa.binary()),
            "value": pa.array([None, b"\x00\xfe", b"\\\n\t", "é".encode()], pa.binary()),
            "headers": pa.array([[("h", b"\x80")], [], [("i", None), ("j", b"x")], None], header),
            "timestamp": pa.array([5, 6, 7, 1_600_000_000_000], pa.timestamp("ms", tz="UTC")),
        }
        opened.append("two", pa.table(rows), partition=1)
    assert run(["consume", log, "--topic", "two", "--formatter", "json"]) == 0
    file = write(tmp_path, capsysbinary.readouterr().out)
    with sparklog.open(log, "rw") as opened:
        opened.create_topic("again", 2)
    assert run(["produce", log, file, "--topic", "again", "--format", "json"]) == 0
    columns = ("partition", "offset", "timestamp", "key", "value", "headers")
    assert held(log, "again", *columns) == held(log, "two", *columns)


def test_csv(log: str, tmp_path: Path) -> None:
    file = write(
        tmp_path,
        b'value,key,timestamp,partition\n"a\nb",k,1600000000000,1\n"",,1600000000001,0\n,x,5,1\n',
    )
    assert run(["produce", log, file, "--topic", "two", "--format", "csv"]) == 0
    found = held(log, "two", "partition", "key", "value", "timestamp")
    assert [row[:3] for row in found] == [(0, None, b""), (1, b"k", b"a\nb"), (1, b"x", None)]
    assert found[1][3].timestamp() == 1_600_000_000


def test_parquet(log: str, tmp_path: Path) -> None:
    rows = pa.table({"key": ["a", None], "value": pa.array([b"1", b"2"]), "partition": [1, 0]})
    pyarrow.parquet.write_table(rows, tmp_path / "x.parquet")
    file = str(tmp_path / "x.parquet")
    assert run(["produce", log, file, "--topic", "two", "--format", "parquet"]) == 0
    assert held(log, "two", "partition", "key", "value") == [(0, None, b"2"), (1, b"a", b"1")]


@pytest.mark.parametrize(
    ("form", "data", "words"),
    [
        ("lines", b"k\tv\nno key\n", "line 2 has no key.separator '\\t': 'no key'. Set"),
        ("json", b'{"value":"a"}\n\n{"value":\n', "line 3: not JSON"),
        ("json", b'{"value":"a"}\n[1]\n', "line 2: not a JSON object"),
        ("json", b'{"value":"a"}\n{"vlaue":"b"}\n', "the object has unknown fields ['vlaue']"),
        ("json", b'{"value":"a"}\n{"value":{"b":1}}\n', "line 2: "),
        ("json", b'{"value":"a"}\n{"valueBase64":"%"}\n', "the value of line 2 is not base64"),
        ("json", b"\xff\xfe\x00junk\n", "line 1: "),
        ("csv", b"value,key\na,b\nc\n", "line 3 has 1 columns, not 2"),
        ("csv", b"value,nose\na,b\n", "must be value and optionally"),
        ("csv", b"value,partition\na,b\n", "CSV: "),
        ("csv", b"", "CSV: "),
        ("csv", b"value,k\xe9y\na,b\n", "line 1: the names of the columns are not UTF-8"),
        ("csv", b"value,value\na,b\n", "each once"),
        ("parquet", b"junk", "Parquet: "),
    ],
)
def test_bad_input_writes_nothing(
    log: str, tmp_path: Path, capsys: Capture, form: str, data: bytes, words: str
) -> None:
    file = write(tmp_path, data)
    keyed = ["--property", "parse.key=true"] if form == "lines" else []
    assert run(["produce", log, file, "--topic", "t", "--format", form, *keyed]) == 2
    error = capsys.readouterr().err
    assert words in error and f"{file}: " in error
    assert held(log) == []


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"value": [1]}, "column value must be binary or string; got int64"),
        ({"value": [{"a": 1}]}, "column value must be binary or string; got struct<a: int64>"),
        ({"value": ["a"], "key": [2.5]}, "column key must be binary or string; got double"),
        ({"value": ["a"], "key": [{"a": 1}]}, "binary or string; got struct<a: int64>"),
        ({"value": ["a"], "key": [[b"x"]]}, "column key must be binary or string; got list<"),
        ({"value": ["a"], "headers": ["x"]}, "column headers must be list<"),
        ({"value": ["a"], "timestamp": ["x"]}, "column timestamp must be a timestamp; got string"),
        ({"value": ["a"], "partition": [0.5]}, "integers from 0, but has type double"),
        ({"value": ["a"], "partition": [1 << 40]}, "integers from 0, but has type int64"),
        ({"value": ["a"], "partition": ["x"]}, "integers from 0, but has type string"),
    ],
)
def test_parquet_of_other_types_is_refused(
    log: str, tmp_path: Path, capsys: Capture, columns: dict[str, Any], words: str
) -> None:
    file = str(tmp_path / "in.parquet")
    pa.parquet.write_table(pa.table(columns), file)
    assert run(["produce", log, file, "--topic", "two", "--format", "parquet"]) == 2
    assert words in capsys.readouterr().err
    assert held(log, "two") == []


def test_parquet_of_the_same_bytes_otherwise_held(log: str, tmp_path: Path) -> None:
    file, texts = str(tmp_path / "in.parquet"), pa.array(["a", "a"])
    for values in (texts.dictionary_encode(), texts.cast(pa.string_view()), pa.nulls(2)):
        pa.parquet.write_table(pa.table({"value": values}), file)
        assert run(["produce", log, file, "--topic", "t", "--format", "parquet"]) == 0
    assert held(log) == [b"a"] * 4 + [None] * 2


def producing_process(log: str, *options: str) -> Any:
    code = "import sys; from sparklog.cli.app import run; sys.exit(run(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "produce", log, "--topic", "t", *options]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe)


def test_a_slow_pipe_is_committed_as_it_comes_and_a_signal_ends_it(log: str) -> None:
    """What came waits for its linger only; SIGTERM commits the whole lines that were read."""
    process = producing_process(log, "--linger-ms", "100", "--json")
    process.stdin.write(b"one\ntwo\nthr")
    process.stdin.flush()
    until(lambda: len(held(log)) >= 2)
    process.stdin.write(b"ee\n")
    process.stdin.flush()
    until(lambda: len(held(log)) >= 3)
    process.stdin.write(b"unfin")
    process.stdin.flush()
    time.sleep(0.3)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    done = json.loads(out)
    assert (done["records"], done["stopped"]) == (3, True)
    assert done["commits"] >= 2
    assert held(log) == [b"one", b"two", b"three"]


def test_a_signal_commits_what_still_waits(log: str) -> None:
    process = producing_process(log, "--linger-ms", "600000")
    process.stdin.write(b"".join(b"%d\n" % n for n in range(1000)))
    process.stdin.flush()

    def waiting_bytes() -> int:
        return int.from_bytes(fcntl.ioctl(process.stdin, termios.FIONREAD, bytes(4)), sys.byteorder)

    until(lambda: not waiting_bytes())
    time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=240)
    assert process.returncode == 0
    assert held(log) == [b"%d" % n for n in range(1000)]
    assert b"1000 records; stopped" in err


def test_a_fast_pipe_is_one_commit(log: str) -> None:
    process = producing_process(log, "--linger-ms", "60000", "--json")
    out, _ = process.communicate(b"a\nb\nc", timeout=240)
    assert json.loads(out)["commits"] == 1
    assert held(log) == [b"a", b"b", b"c"]


def test_a_bad_line_far_in(
    log: str, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was committed before its chunk stays, and its number counts from the file's start."""
    monkeypatch.setattr(input_formats, "BLOCK_BYTES", 1000)
    monkeypatch.setattr(producing, "COMMIT_BYTES", 1000)
    lines = [b'{"value":"%04d"}' % n for n in range(500)]
    lines[321] = b"nonsense"
    file = write(tmp_path, b"\n".join(lines))
    assert run(["produce", log, file, "--topic", "t", "--format", "json"]) == 2
    assert "line 322: not JSON" in capsys.readouterr().err
    found = held(log)
    assert 200 < len(found) < 321
    assert found == [b"%04d" % n for n in range(len(found))]


@pytest.mark.parametrize("identity", [[], ["--writer", "w", "--batch", "0"]])
def test_a_record_that_is_too_large(
    log: str, tmp_path: Path, capsys: Capture, identity: list[str]
) -> None:
    file = write(tmp_path, b"a\nb\n" + b"c" * 2_000_000 + b"\nd\n")
    assert run(["produce", log, file, "--topic", "t", *identity]) == 2
    assert "record 3 of the input has 2000000 bytes" in capsys.readouterr().err
    assert held(log) == []
    assert not list((tmp_path / "log").glob("sparklog-chunk-*"))


def test_ignored_errors(log: str, tmp_path: Path) -> None:
    file = write(tmp_path, b"k\tv\nno key\n")
    given = ["--property", "parse.key=true", "--property", "ignore.error=true"]
    assert run(["produce", log, file, "--topic", "t", *given]) == 0
    assert held(log, "t", "key", "value") == [(b"k", b"v"), (None, b"no key")]


def test_the_same_file_twice(
    log: str, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_formats, "BLOCK_BYTES", 1000)  # one commit of all blocks
    file = write(tmp_path, b"".join(b"%d\n" % n for n in range(1000)))
    command = ["produce", log, file, "--topic", "t", "--json", "--writer", "daily", "--batch"]
    assert run([*command, "0"]) == 0
    assert json.loads(capsys.readouterr().out)["commits"] == 1
    assert run([*command, "0"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert (again["replayed"], again["records"], again["offsets"]) == (True, 0, {"0": [0, 1000]})
    assert run([*command, "1"]) == 0
    assert len(held(log)) == 2000
    write(tmp_path, b"other\n")
    assert run([*command, "1"]) == 1  # another file under the same number
    assert "nothing was written" in capsys.readouterr().err
    assert len(held(log)) == 2000
    assert not list((tmp_path / "log").glob("sparklog-chunk-*"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--topic", "none"], "its topics: t, two; --create PARTITIONS creates it"),
        (["--topic", "t", "--writer", "w"], "require each other"),
        (["--topic", "t", "--writer", "", "--batch", "0"], "writer is empty"),
        (["--topic", "t", "--partition", "9"], "has no partition 9"),
        (["--topic", "t", "--format", "csv", "--property", "parse.key=true"], "--format lines"),
        (["--topic", "t", "--property", "parse.nose=true"], "is unknown"),
        (["--topic", "t", "--property", "parse.key=true", "--property", "key.separator="], "empty"),
    ],
)
def test_wrong_use(
    log: str, tmp_path: Path, capsys: Capture, arguments: list[str], words: str
) -> None:
    file = write(tmp_path, b"x\n")
    assert run(["produce", log, file, *arguments]) == 2
    assert words in capsys.readouterr().err
    assert held(log) == []


def test_parquet_from_a_pipe(
    log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """It needs the footer, so it is read twice; the same bytes are the same batch, file or not."""
    rows = pa.table({"key": ["a"] * 9, "value": [b"%d" % n for n in range(9)]})
    pyarrow.parquet.write_table(rows, tmp_path / "x.parquet")
    command = ["produce", log, "--topic", "t", "--format", "parquet", "--writer", "w", "--batch"]
    for end, batch in ((b"", "0"), (b"no footer", "1")):
        reading, writing = os.pipe()
        with os.fdopen(writing, "wb") as pipe:
            pipe.write((tmp_path / "x.parquet").read_bytes() + end)
        with os.fdopen(reading, "rb") as pipe:
            monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=pipe))
            assert run([*command, batch]) == (2 if end else 0)
    assert "-: Parquet: " in capsys.readouterr().err
    assert held(log) == [b"%d" % n for n in range(9)]
    assert run([*command, "0", "--json", str(tmp_path / "x.parquet")]) == 0
    assert json.loads(capsys.readouterr().out)["replayed"]


@pytest.mark.parametrize(
    ("arguments", "data"),
    [
        (["--format", "json"], b'{"value":\n'),
        (["--format", "csv"], b"nose\n1\n"),
        (["--format", "parquet"], b"junk"),
        (["--property", "parse.key=true"], b"no key\n"),
        (["--partition", "2"], b"x\n"),
    ],
)
def test_refused_input_makes_neither_topic_nor_log(
    log: str, tmp_path: Path, capsys: Capture, arguments: list[str], data: bytes
) -> None:
    file = write(tmp_path, data)
    new = str(tmp_path / "new")
    for path in (log, new):
        assert run(["produce", path, file, "--topic", "fresh", "--create", "2", *arguments]) == 2
    assert not Path(new).exists()
    with sparklog.open(log) as opened:
        assert sorted(opened.topics()) == ["t", "two"]


def test_no_log_and_no_file(tmp_path: Path, capsys: Capture) -> None:
    new = str(tmp_path / "new")
    assert run(["produce", new, write(tmp_path, b"x\n"), "--topic", "t"]) == 2
    assert not (tmp_path / "new").exists()
    assert run(["produce", new, str(tmp_path / "none"), "--topic", "t", "--create", "1"]) == 2
    above = str(tmp_path / "no" / "such")
    capsys.readouterr()
    assert run(["produce", above, write(tmp_path, b"x\n"), "--topic", "t", "--create", "1"]) == 2
    assert "does not exist" in capsys.readouterr().err
    assert run(["produce", new, write(tmp_path, b""), "--topic", "t", "--create", "3"]) == 0
    with sparklog.open(new) as log:
        assert log.offsets("t") == {0: (0, 0), 1: (0, 0), 2: (0, 0)}
    capsys.readouterr()
