"""`sparklog delete-records`: Kafka's JSON in, Kafka's lines out."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog.cli.app import run

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log"
    with sparklog.open(path, "rw") as log:
        log.create_topic("t", 2)
        for partition in range(2):
            log.append("t", pa.table({"value": ["x"] * 5}), partition=partition)
    return path


def wanted(tmp_path: Path, *rows: tuple[str, int, int], **more: object) -> str:
    parts = [{"topic": t, "partition": p, "offset": o} for t, p, o in rows]
    path = tmp_path / "offsets.json"
    path.write_text(json.dumps({"partitions": parts, **more}))
    return str(path)


def starts(log: Path) -> dict[int, int]:
    with sparklog.open(log) as opened:
        return {p: span[0] for p, span in opened.offsets("t").items()}


def test_by_a_file(log: Path, tmp_path: Path, capsys: Capture) -> None:
    file = wanted(tmp_path, ("t", 0, 3), ("t", 1, -1), version=1)
    assert run(["delete-records", str(log), "--offset-json-file", file]) == 0
    assert capsys.readouterr().out == (
        "t-0: begins at 3\n"
        "t-1: begins at 5\n"
    )
    assert starts(log) == {0: 3, 1: 5}
    # A log start never goes back.
    assert run(["delete-records", str(log), "--offset", "t:0:1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [
        {"topic": "t", "partition": 0, "low_watermark": 3, "error": None}
    ]


def test_one_that_cant_be_stops_no_other(log: Path, capsys: Capture) -> None:
    options = [f"--offset={each}" for each in ("t:0:9", "none:0:1", "t:7:1", "t:1:2")]
    assert run(["delete-records", str(log), *options]) == 1
    out, err = capsys.readouterr()
    assert out == "t-1: begins at 2\n"
    assert [line.partition(": ")[0] for line in err.splitlines()] == ["t-0", "none-0", "t-7"]
    assert "the records before offset 9 can't be deleted" in err
    assert starts(log) == {0: 0, 1: 2}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is not JSON"),
        ("[1]", "no list 'partitions'"),
        ('{"partitions": {}}', "no list 'partitions'"),
        ('{"partitions": [1]}', "entry 1: it must be"),
        ('{"partitions": [{"topic": "t", "partition": "0", "offset": 1}]}', "it must be like"),
        ('{"partitions": [{"topic": "t", "partition": true, "offset": 1}]}', "it must be like"),
        ('{"partitions": [], "version": 2}', "has version 2"),
        ('{"partitions": []}', "names no partition"),
    ],
)
def test_files_that_cant_be(
    text: str, says: str, log: Path, tmp_path: Path, capsys: Capture
) -> None:
    file = tmp_path / "offsets.json"
    file.write_text(text)
    assert run(["delete-records", str(log), "--offset-json-file", str(file)]) == 2
    assert says in capsys.readouterr().err
    assert starts(log) == {0: 0, 1: 0}


def test_wrong_use_is_2(log: Path, tmp_path: Path, capsys: Capture) -> None:
    twice = wanted(tmp_path, ("t", 0, 3), ("t", 0, 4))
    latin = tmp_path / "latin"
    latin.write_bytes(b'{"\xe4": 1}')
    for options, says in (
        ([], "pass either"),
        (["--offset", "t:0:1", "--offset-json-file", twice], "pass either"),
        (["--offset-json-file", twice], "t-0 is named twice"),
        (["--offset-json-file", str(latin)], "not UTF-8"),
        (["--offset-json-file", "none"], "No such file"),
        (["--offset", "t:0"], "must have the form topic:partition:offset"),
        (["--offset", "t:0:x"], "must have the form topic:partition:offset"),
    ):
        assert run(["delete-records", str(log), *options]) == 2
        assert says in capsys.readouterr().err
