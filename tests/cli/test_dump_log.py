"""`sparklog dump-log` as users meet it; what it prints is judged in tests/tools."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sparklog.cli.app import run
from tests.service.logs import flip, make

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def partition(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("dump") / "log"
    make(path)
    return path / "t-0"


def test_a_partition(partition: Path, capsys: Capture) -> None:
    files = sorted(partition.glob("00000000000000000024.*"))
    assert run(["dump-log", "--files", ",".join(map(str, files)), "--print-data-log"]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert [line for line in said.out.splitlines() if line.startswith("Dumping ")] == [
        f"Dumping {file}" for file in files
    ]
    assert "| offset: 24 CreateTime: 1700000012000 keySize: 1 valueSize: 6 " in said.out
    assert " payload: t-12-a\n" in said.out


def test_decoders_imply_printing(partition: Path, capsys: Capture) -> None:
    log = str(min(partition.glob("*.log")))
    for given in (["--value-decoder-class"], ["--key-decoder-class", "StringDecoder"]):
        assert run(["dump-log", "--files", log, *given]) == 0
        assert " payload: " in capsys.readouterr().out


def test_damage_is_1(partition: Path, tmp_path: Path, capsys: Capture) -> None:
    log = tmp_path / "00000000000000000014.log"
    log.write_bytes(min(partition.glob("*.log")).read_bytes())
    flip(log, 80)
    assert run(["dump-log", "--files", str(log)]) == 1
    said = capsys.readouterr()
    assert "isvalid: false" in said.out
    flip(log, 8)  # now the length can't be right
    assert run(["dump-log", "--files", str(log)]) == 1
    assert "invalid bytes at the end" in capsys.readouterr().out
    flip(log, 8, 0x81)
    assert run(["dump-log", "--files", str(log), "--deep-iteration"]) == 1
    said = capsys.readouterr()
    assert said.out == f"Dumping {log}\nLog starting offset: 14\n"
    assert said.err.count("\n") == 1
    assert "less than the minimum" in said.err


def test_json(partition: Path, capsys: Capture) -> None:
    files = sorted(partition.glob("00000000000000000024.*"))
    names = ",".join(map(str, files))
    assert run(["dump-log", "--files", names, "--json", "--print-data-log"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    by_file = {file.suffix: [f for f in found if f["file"] == str(file)] for file in files}
    first = by_file[".log"][0]
    assert (first["baseOffset"], first["count"], first["isvalid"]) == (24, 2, True)
    assert (first["deleteHorizonMs"], first["compresscodec"]) == (None, "none")
    assert first["records"][0] | {"key": "2", "payload": "t-12-a"} == first["records"][0]
    assert set(by_file[".index"][0]) == {"file", "offset", "position"}
    assert set(by_file[".timeindex"][0]) == {"file", "timestamp", "offset"}
    assert by_file[".snapshot"] == []


def test_json_of_damage(partition: Path, tmp_path: Path, capsys: Capture) -> None:
    log = tmp_path / "00000000000000000014.log"
    log.write_bytes(min(partition.glob("*.log")).read_bytes()[:-3])
    assert run(["dump-log", "--files", str(log), "--json"]) == 1
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert set(last) == {"file", "invalidBytes"}
    assert run(["dump-log", "--files", str(tmp_path / "none.log"), "--json"]) == 2
    index = log.with_suffix(".index")
    index.write_bytes(b"")
    assert run(["dump-log", "--files", str(index), "--json"]) == 0
    (only,) = capsys.readouterr().out.splitlines()
    assert json.loads(only) == {"file": str(index), "says": f"{index} is empty."}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "Missing option '--files'"),
        (["--files", ","], "at least one file"),
        (["--files", "0.log"], "does not exist"),
        (["--files", "5.log,0.log"], "does not exist"),
        (["--files", "."], "is a directory"),
        (["--files", "0.log/"], "does not exist"),
        (["--files", "7.log"], "is a directory"),
        (["--files", "00000000000000000005-0000000001.checkpoint"], "with kafka-dump-log"),
        (["--files", "x.log"], "must begin with an offset"),
        (["--files", "s3://bucket/0.log"], "is a URL"),
        (["--files", "5.log", "--max-bytes", "-1"], "--max-bytes"),
        (["--files", "5.log", "--value-decoder-class", "my.Own"], "my.Own is not supported"),
        (["--files", "5.log", "--offsets-decoder"], "use kafka-dump-log"),
        (["--files", "5.log", "--cluster-metadata-decoder"], "use kafka-dump-log"),
    ],
)
def test_wrong_use_is_2(
    arguments: list[str],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("5.log").touch()
    Path("x.log").touch()
    Path("7.log").mkdir()
    for form in ([], ["--json"]):
        assert run(["dump-log", *arguments, *form]) == 2
        said = capsys.readouterr()
        assert says in said.err
        assert said.out == ""
        assert "Traceback" not in said.err


def test_an_unknown_file_is_passed_over(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "partition.metadata"
    path.touch()
    assert run(["dump-log", "--files", str(path)]) == 0
    said = capsys.readouterr()
    assert (said.out, said.err) == (f"Dumping {path}\n", f"Ignoring unknown file {path}\n")


def test_a_reader_that_has_enough(partition: Path) -> None:
    log = min(partition.glob("*.log"))
    line = f"{sys.executable} -m sparklog.cli dump-log --files {log} | head -1"
    done = subprocess.run(line, shell=True, capture_output=True, text=True, timeout=240)
    assert (done.stdout, done.stderr) == (f"Dumping {log}\n", "")
