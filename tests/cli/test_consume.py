"""`sparklog consume`: what it prints, from where, how it ends."""

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog.cli.app import run
from sparklog.service import Service
from tests.service.logs import flip, logs

Capture = pytest.CaptureFixture[bytes]
TIME = 1_600_000_000_000
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def table(numbers: range) -> pa.Table:
    stamps = pa.array([TIME + n for n in numbers], pa.timestamp("ms", tz="UTC"))
    return pa.table(
        {
            "key": pa.array([None if n % 3 == 2 else b"k%d" % (n % 3) for n in numbers]),
            "value": pa.array([None if n == 4 else b"v%d" % n for n in numbers], pa.binary()),
            "timestamp": stamps,
            "headers": pa.array(
                [[("a", b"1"), ("b", None)] if n == 0 else [] for n in numbers], HEADERS
            ),
        }
    )


@pytest.fixture
def log(tmp_path: Path) -> str:
    """Topic t: offsets 0 to 5 in partition 0, one record in partition 1; e: an empty topic."""
    path = str(tmp_path / "log")
    with sparklog.open(path, "rw") as log:
        log.create_topic("t", 2)
        log.create_topic("e")
        log.append("t", table(range(6)), partition=0)
        log.append("t", pa.table({"value": [b'\xff"\x00'], "key": [b"\xfe"]}), partition=1)
    return path


def printed(capsysbinary: Capture, *arguments: str, code: int = 0) -> list[bytes]:
    assert run(["consume", *arguments]) == code
    return capsysbinary.readouterr().out.splitlines()


def test_headers_as_filters(log: str, capsysbinary: Capture) -> None:
    """By key, by key and value, by a pattern; several are all wanted; one of a key is enough."""
    given = [
        [("a", b"1")], None, [("a", b"2"), ("b", b"x")], [], [("a", b"1"), ("a", b"2")],
        [("a", None)], [("b", b"\xff1")], [("c", b"")],
    ]  # fmt: skip
    with sparklog.open(log, "rw") as opened:
        rows = {"value": [b"%d" % n for n in range(8)], "headers": pa.array(given, HEADERS)}
        opened.append("e", pa.table(rows))
    for arguments, found in {
        ("--header", "a"): b"0 2 4 5",
        ("--header", "a=2"): b"2 4",
        ("--header", "a=1", "--header", "a=2"): b"4",
        ("--header", "a", "--header", "b"): b"2",
        ("--header", "c="): b"7",
        ("--header", "d"): b"",
        ("--header-regex", "b=1$"): b"6",
        ("--header-regex", "a=^[12]$"): b"0 2 4",
        ("--header", "a=2", "--max-messages", "1"): b"2",
        ("--header", "a", "--value-regex", "[45]"): b"4 5",
    }.items():
        assert printed(capsysbinary, log, "--topic", "e", *arguments) == found.split(), arguments
    for wrong in (("--header-regex", "a"), ("--header-regex", "a=(")):
        assert run(["consume", log, "--topic", "e", *wrong]) == 2
        capsysbinary.readouterr()


def test_kafkas_text(log: str, capsysbinary: Capture) -> None:
    zero = (log, "--topic", "t", "--partition", "0")
    assert printed(capsysbinary, *zero) == [b"v0", b"v1", b"v2", b"v3", b"null", b"v5"]
    shown = [f"print.{n}=true" for n in ("timestamp", "partition", "offset", "headers", "key")]
    options = [part for one in shown for part in ("--property", one)]
    assert printed(capsysbinary, *zero, *options, "--max-messages", "3") == [
        b"CreateTime:1600000000000\tPartition:0\tOffset:0\ta:1,b:null\tk0\tv0",
        b"CreateTime:1600000000001\tPartition:0\tOffset:1\tNO_HEADERS\tk1\tv1",
        b"CreateTime:1600000000002\tPartition:0\tOffset:2\tNO_HEADERS\tnull\tv2",
    ]
    given = "print.key=true,key.separator=|,null.literal=-"
    assert printed(capsysbinary, *zero, "--property", given)[4:] == [b"k1|-", b"-|v5"]


def test_json_hex_raw(log: str, capsysbinary: Capture) -> None:
    found = [json.loads(line) for line in printed(capsysbinary, log, "--topic", "t", "--json")]
    assert len(found) == 7
    assert found[0] == {
        "topic": "t", "partition": 0, "offset": 0, "timestamp": TIME,
        "timestampType": "CreateTime", "key": "k0", "value": "v0",
        "headers": [{"key": "a", "value": "1"}, {"key": "b", "value": None}],
    }  # fmt: skip
    assert (found[4]["value"], found[2]["key"]) == (None, None)
    assert (found[6]["keyBase64"], found[6]["valueBase64"]) == ("/g==", "/yIA")
    one = (log, "--topic", "t", "--partition", "1", "--formatter")
    assert printed(capsysbinary, *one, "hex", "--property", "print.key=true") == [b"fe\tff2200"]
    assert printed(capsysbinary, *one, "raw") == [b'\xff"\x00']


@pytest.mark.parametrize(
    ("value", "key"),
    [
        ('a"b\\c\n\r\t/\x08é\U0001f600', "\x00\x1f"),
        ("", "\u2028"),
        ("\\n", '"'),
        ("x" * 70_000, "\x7f"),
    ],
)
def test_json_says_any_text(tmp_path: Path, capsysbinary: Capture, value: str, key: str) -> None:
    with sparklog.open(tmp_path / "log", "rw") as log:
        log.create_topic("t")
        log.append("t", pa.table({"key": [key, "k"], "value": [value, value]}))
    found = printed(capsysbinary, str(tmp_path / "log"), "--topic", "t", "--formatter", "json")
    assert [(json.loads(f)["key"], json.loads(f)["value"]) for f in found] == [
        (key, value), ("k", value),
    ]  # fmt: skip


def test_where_it_begins(log: str, capsysbinary: Capture) -> None:
    zero = (log, "--topic", "t", "--partition", "0")
    when = datetime.fromtimestamp((TIME + 3) / 1000, UTC).isoformat()
    for option in (["--offset", "3"], ["--timestamp", when], ["--offset", when]):
        assert printed(capsysbinary, *zero, *option) == [b"v3", b"null", b"v5"]
    assert printed(capsysbinary, *zero, "--offset", "latest") == []
    assert len(printed(capsysbinary, *zero, "--from-beginning")) == 6
    assert printed(capsysbinary, log, "--topic", "e") == []


def test_filters(log: str, capsysbinary: Capture) -> None:
    of = (log, "--topic", "t")
    assert printed(capsysbinary, *of, "--key", "k1") == [b"v1", b"null"]
    assert printed(capsysbinary, *of, "--key-regex", "^k[01]$", "--value-regex", "[13]") == [
        b"v1", b"v3",
    ]  # fmt: skip
    assert printed(capsysbinary, *of, "--key-regex", "k", "--max-messages", "2") == [b"v0", b"v1"]
    assert run(["consume", *of, "--key-regex", "("]) == 2
    assert b"missing )" in capsysbinary.readouterr().err


def test_a_group_goes_on(log: str, capsysbinary: Capture) -> None:
    of = (log, "--topic", "t", "--partition", "0", "--group", "g")
    assert printed(capsysbinary, *of, "--max-messages", "2") == [b"v0", b"v1"]
    assert printed(capsysbinary, *of, "--key", "k0", "--max-messages", "1") == [b"v3"]
    assert printed(capsysbinary, *of) == [b"null", b"v5"]
    assert printed(capsysbinary, *of) == []
    with sparklog.open(log) as opened:
        assert opened.readers()["offset"].to_pylist() == [6]


def test_it_follows(log: str, capsysbinary: Capture) -> None:
    """From wherever the log ends when it begins: what comes in each partition, each record once."""
    done = threading.Event()
    command = ["consume", log, "--topic", "t", "-f", "--timeout-ms", "240000"]

    def append() -> None:
        with sparklog.open(log, "rw") as opened:
            for n in itertools.count():
                if done.wait(0.05):
                    return
                opened.append("t", pa.table({"value": [b"new %d" % n]}), partition=n % 2)

    writer = threading.Thread(target=append)
    writer.start()
    try:
        assert run([*command, "--max-messages", "5"]) == 0
    finally:
        done.set()
        writer.join()
    lines = capsysbinary.readouterr().out.splitlines()
    numbers = [int(line.removeprefix(b"new ")) for line in lines]
    assert len(numbers) == 5
    for partition in (0, 1):
        came = [n for n in numbers if n % 2 == partition]
        assert came == [*range(min(came, default=0), max(came, default=0) + 1, 2)][: len(came)]
    timed_out = ["consume", log, "--topic", "e", "--follow", "--timeout-ms", "50"]
    assert run(timed_out) == 0
    assert capsysbinary.readouterr().err == b"0 records\n"


def test_a_signal_ends_it_cleanly(log: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "sparklog.cli", "consume", log, "--topic", "t", "-f",
         "--from-beginning"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(7)]
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=240)
    assert (process.returncode, out, err) == (0, b"", b"7 records\n")
    assert lines[5] == b"v5\n"


def test_nobody_reads_any_more(log: str) -> None:
    """As kafka-console-consumer it ends well; how many records were read nobody knows."""
    command = f"{sys.executable} -m sparklog.cli consume {log} --topic t -f --from-beginning"
    script = f"set -o pipefail; {command} | head -n 1"
    done = subprocess.run(["bash", "-c", script], capture_output=True, timeout=240)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"v0\n", b"")


def test_damage_ends_it_behind_whole_lines(tmp_path: Path, capsysbinary: Capture) -> None:
    with sparklog.open(tmp_path / "log", "rw") as log:
        log.create_topic("t", config={"segment.bytes": 1 << 20})
        for n in range(50):
            log.append("t", pa.table({"value": [b"%03d" % n * 30_000]}))
    flip(logs(tmp_path / "log" / "t-0")[3], 150)
    assert run(["consume", str(tmp_path / "log"), "--topic", "t"]) == 1
    found = capsysbinary.readouterr()
    lines = found.out.split(b"\n")
    assert lines[-1] == b"" and 0 < len(lines) - 1 < 50
    assert lines[:-1] == [b"%03d" % n * 30_000 for n in range(len(lines) - 1)]
    assert found.err.startswith(b"Error: ") and b"offsets [" in found.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--topic", "none"], "none is not in"),
        (["--topic", "t", "--partition", "7"], "has no partition 7"),
        (["--topic", "t", "--offset", "1"], "requires --partition exactly once"),
        (["--topic", "t", "--partition", "7", "--offset", "-3"], "has no partition 7"),
        (["--topic", "t", "--formatter", "kafka.Nice"], "must be text, json, hex, raw"),
        (["--topic", "t", "--property", "key.deserializer=Avro"], "must be Kafka's class for"),
        (["--topic", "t", "--property", "value.deserializer=LongDeserializer"], "of 8 bytes"),
        (["--topic", "t", "--offset", "soon"], "latest, or an ISO time such as"),
        (["--topic", "t", "--offset", "earliest", "--from-beginning"], "exclude each other"),
        (["--topic", "t", "--property", "print.nose=true"], "is unknown"),
        (["--topic", "t", "--property", "print.key=maybe"], "must be true or false"),
        (["--topic", "t", "--property", "print.key"], "must have the form key=value"),
        (["--topic", "t", "--max-messages", "0"], "not in the range"),
        (["--topic", "t", "--group", ""], "group"),
    ],
)
def test_wrong_use(log: str, capsysbinary: Capture, arguments: list[str], words: str) -> None:
    assert run(["consume", log, *arguments]) == 2
    assert words in capsysbinary.readouterr().err.decode()


def test_offsets_that_are_gone(log: str, capsysbinary: Capture) -> None:
    with sparklog.open(log, "rw") as opened:
        opened.delete_records("t", {0: 4})
    zero = (log, "--topic", "t", "--partition", "0")
    assert printed(capsysbinary, *zero) == [b"null", b"v5"]
    assert run(["consume", *zero, "--offset", "1"]) == 1
    assert b"has offsets [4, 6)" in capsysbinary.readouterr().err
    assert run(["consume", os.path.join(log, "nowhere"), "--topic", "t"]) != 0


def test_an_archive(tmp_path: Path, capsysbinary: Capture) -> None:
    config = {
        "segment.bytes": 1 << 20, "remote.storage.enable": True, "local.retention.bytes": 0,
        "retention.ms": -1,
    }  # fmt: skip
    path, url = tmp_path / "log", f"file://{tmp_path}/bucket"
    with sparklog.open(path, "rw") as log:
        log.create_topic("t", config=config)
        for n in range(4):
            log.append("t", pa.table({"value": [b"%d" % n * 900_000]}))
    with Service(path, remote=url) as service:
        assert not service.run_once().errors
    assert printed(capsysbinary, url, "--topic", "t", "--max-messages", "2") == [
        b"0" * 900_000, b"1" * 900_000,
    ]  # fmt: skip
    assert run(["consume", url, "--topic", "t", "--group", "g"]) == 2
    assert b"an archive has none until it is restored" in capsysbinary.readouterr().err


def test_so_many_before_the_end(log: str, capsysbinary: Capture) -> None:
    """As kcat has it: of each partition, and never before its log start."""
    with sparklog.open(log, "rw") as opened:
        opened.delete_records("t", {0: 1})
    offsets = ["--topic", "t", "--property", "print.offset=true"]
    shown = printed(capsysbinary, log, *offsets, "--partition", "0", "--offset", "-2")
    assert [line.split(b"\t")[0] for line in shown] == [b"Offset:4", b"Offset:5"]
    shown = printed(capsysbinary, log, *offsets, "--offset", "-1")
    assert [line.split(b"\t")[0] for line in shown] == [b"Offset:5", b"Offset:0"]
    shown = printed(capsysbinary, log, *offsets, "--partition", "0", "--offset", "-99")
    assert shown[0].startswith(b"Offset:1\t") and len(shown) == 5
    assert printed(capsysbinary, log, "--topic", "e", "--offset", "-3") == []


def test_a_time_in_both_forms(tmp_path: Path, capsysbinary: Capture) -> None:
    times = pa.array([1372860000000 + n for n in range(3)], pa.timestamp("ms", "UTC"))
    with sparklog.open(tmp_path / "log", "rw") as log:
        log.create_topic("t")
        log.append("t", pa.table({"value": ["a", "b", "c"], "timestamp": times}))
    for when in ("1372860000001", "2013-07-03T14:00:00.001", "2013-07-03T16:00:00.001+02:00"):
        shown = printed(capsysbinary, str(tmp_path / "log"), "--topic", "t", "--timestamp", when)
        assert shown == [b"b", b"c"], when
    day = ["--topic", "t", "--timestamp", "20130703"]
    assert len(printed(capsysbinary, str(tmp_path / "log"), *day)) == 3


def test_deserializers_of_numbers(tmp_path: Path, capsysbinary: Capture) -> None:
    """What Kafka Streams' quickstart prints: words and their counts."""
    counts = [1, -2, None]
    raws = [None if n is None else n.to_bytes(8, "big", signed=True) for n in counts]
    with sparklog.open(tmp_path / "log", "rw") as log:
        log.create_topic("counts")
        rows = {"key": [b"all", b"streams", b"kafka"], "value": pa.array(raws, pa.binary())}
        log.append("counts", pa.table(rows))
    kafkas = "org.apache.kafka.common.serialization"
    shown = printed(
        capsysbinary, str(tmp_path / "log"), "--topic", "counts",
        "--formatter", "org.apache.kafka.tools.consumer.DefaultMessageFormatter",
        "--formatter-property", "print.key=true",
        "--formatter-property", f"key.deserializer={kafkas}.StringDeserializer",
        "--formatter-property", f"value.deserializer={kafkas}.LongDeserializer",
    )  # fmt: skip
    assert shown == [b"all\t1", b"streams\t-2", b"kafka\tnull"]
