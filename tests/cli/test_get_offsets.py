"""`sparklog get-offsets`: which offset, when; in the form of kafka-get-offsets."""

import json

import pyarrow as pa
import pytest

import sparklog
from sparklog.cli.app import run
from sparklog.errors import InvalidRequestError
from sparklog.tools.get_offsets import OffsetQuery, get_offsets, parse_time

Capture = pytest.CaptureFixture[str]
T0 = 1_700_000_000_000


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("offsets") / "log"
    with sparklog.open(path, "rw") as log:
        log.create_topic("a", 4)
        log.create_topic("b.1")
        for partition in range(3):
            times = [T0 + 10, T0 + 5 * partition, T0]
            rows = {"value": ["x"] * 3, "timestamp": pa.array(times, pa.timestamp("ms"))}
            log.append("a", pa.table(rows), partition=partition)
        log.delete_records("a", {2: 1})
    return str(path)


def lines(capsys: Capture, log: str, *options: str) -> list[str]:
    assert run(["get-offsets", log, *options]) == 0
    return capsys.readouterr().out.split()


@pytest.mark.parametrize(
    ("when", "wanted"),
    [
        ("latest", ["a:0:3", "a:1:3", "a:2:3", "a:3:0", "b.1:0:0"]),
        ("-1", ["a:0:3", "a:1:3", "a:2:3", "a:3:0", "b.1:0:0"]),
        ("earliest", ["a:0:0", "a:1:0", "a:2:1", "a:3:0", "b.1:0:0"]),
        ("-2", ["a:0:0", "a:1:0", "a:2:1", "a:3:0", "b.1:0:0"]),
        ("max-timestamp", ["a:0:0", "a:1:0", "a:2:1"]),
        ("-3", ["a:0:0", "a:1:0", "a:2:1"]),
        ("-4", ["a:0:0", "a:1:0", "a:2:1", "a:3:0", "b.1:0:0"]),
        ("earliest-local", ["a:0:0", "a:1:0", "a:2:1", "a:3:0", "b.1:0:0"]),
        ("-5", []),
        (str(T0 + 7), ["a:0:0", "a:1:0", "a:2:1"]),
        (str(T0 + 11), []),
        ("0", ["a:0:0", "a:1:0", "a:2:1"]),
    ],
)
def test_times(when: str, wanted: list[str], log: str, capsys: Capture) -> None:
    assert lines(capsys, log, "--time", when) == wanted


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (["--topic", "a"], ["a:0", "a:1", "a:2", "a:3"]),
        (["--topic", "b.."], ["b.1:0"]),
        (["--topic", "a", "--partitions", "0,3,9"], ["a:0", "a:3"]),
        (["--partitions", "0"], ["a:0", "b.1:0"]),
        (["--topic-partitions", "a:1"], ["a:1"]),
        (["--topic-partitions", "a:1-3"], ["a:1", "a:2"]),
        (["--topic-partitions", "a:2-,b.*"], ["a:2", "a:3", "b.1:0"]),
        (["--topic-partitions", "a:-2"], ["a:0", "a:1"]),
        (["--topic-partitions", ":0"], ["a:0", "b.1:0"]),
        (["--topic-partitions", "a:"], ["a:0", "a:1", "a:2", "a:3"]),
    ],
)
def test_filters(options: list[str], wanted: list[str], log: str, capsys: Capture) -> None:
    assert [line.rpartition(":")[0] for line in lines(capsys, log, *options)] == wanted


def test_json(log: str, capsys: Capture) -> None:
    assert run(["get-offsets", log, "--time", "-3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"a": {"0": 0, "1": 0, "2": 1}}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--topic", "none"], "could not match any topic-partitions"),
        (["--topic", "a", "--partitions", "7"], "could not match any topic-partitions"),
        (["--topic", "a", "--partitions", "x"], "must be numbers joined by ','"),
        (["--topic-partitions", "a:x"], "must be a topic"),
        (["--topic-partitions", "a:1", "--topic", "a"], "can't be used with"),
        (["--time", "-6"], ", milliseconds"),
        (["--time", "now"], ", milliseconds"),
        (["--time", str(2**63)], ", milliseconds"),
    ],
)
def test_wrong_use_is_2(options: list[str], says: str, log: str, capsys: Capture) -> None:
    assert run(["get-offsets", log, *options]) == 2
    assert says in capsys.readouterr().err


def test_in_python(log: str) -> None:
    with sparklog.open(log) as opened:
        query = OffsetQuery(topic="a", partitions=(1,), time=parse_time("latest"))
        assert get_offsets(opened, query) == {"a": {1: 3}}
        with pytest.raises(InvalidRequestError, match=r"the log has a, b\.1"):
            get_offsets(opened, OffsetQuery(topic="c"))
