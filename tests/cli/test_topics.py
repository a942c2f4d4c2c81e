"""`sparklog topics` and `sparklog configs`: from Kafka's options to Kafka's words."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog.cli.app import run
from sparklog.fs import LOCAL

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log"
    with sparklog.open(path, "rw") as log:
        log.create_topic("t", 2, {"retention.ms": "5000", "internal.segment.bytes": "200"})
        log.create_topic("t.x")
        for _ in range(4):
            log.append("t", pa.table({"value": [b"x" * 100]}), partition=1)
        log.delete_records("t", {1: 2})
    return path


def printed(capsys: Capture, *arguments: str, code: int = 0) -> str:
    assert run(arguments) == code
    said = capsys.readouterr()
    return said.out if code == 0 else said.err


def test_list(log: Path, capsys: Capture) -> None:
    assert printed(capsys, "topics", "list", str(log)) == "t\nt.x\n"
    assert json.loads(printed(capsys, "topics", "list", str(log), "--json")) == ["t", "t.x"]
    assert printed(capsys, "topics", "list", str(log), "--topic", "t..") == "t.x\n"
    assert printed(capsys, "topics", "list", str(log), "--topic", "t, nope") == "t\n"
    assert printed(capsys, "topics", "list", str(log), "--topic", "nope") == ""
    assert "nor a regular expression" in printed(
        capsys, "topics", "list", str(log), "--topic", "(", code=2
    )


def test_internal_topics_of_a_broker(log: Path, capsys: Capture) -> None:
    (log / "__consumer_offsets-0").mkdir()
    (log / "__consumer_offsets-0" / "00000000000000000000.log").touch()
    (log / "meta.properties").write_text("node.id=4\n")
    (log / "sparklog.topics").unlink()  # as in a broker's own log dir
    names = printed(capsys, "topics", "list", str(log)).split()
    assert names == ["__consumer_offsets", "t", "t.x"]  # and none of sparklog's own
    assert printed(capsys, "topics", "list", str(log), "--exclude-internal").split() == names[1:]
    document = json.loads(printed(capsys, "log-dirs", str(log), "--json"))
    assert document["brokers"][0]["broker"] == 4


def test_describe(log: Path, capsys: Capture) -> None:
    text = printed(capsys, "topics", "describe", str(log))
    with sparklog.open(log) as opened:
        topic_id = opened.topic("t").id
    assert text.startswith(
        f"Topic: t\tTopicId: {topic_id}\tPartitionCount: 2\t"
        "Configs: internal.segment.bytes=200,retention.ms=5000\n"
    )
    (row,) = [line.split() for line in text.splitlines() if f"{log}/t-1" in line]
    assert row == ["1", "2", "4", "680", "B", "4", "0", str(log / "t-1")]
    assert "remote only" not in text
    (found,) = json.loads(printed(capsys, "topics", "describe", str(log), "--topic", "t", "--json"))
    assert found["configs"] == {"internal.segment.bytes": "200", "retention.ms": "5000"}
    assert found["partitions"][1] == {
        "partition": 1, "dir": str(log / "t-1"), "start": 2, "end": 4, "size": 680, "segments": 4,
        "remote_segments": 0, "leader_epoch": 0, "offline": None,
    }  # fmt: skip
    assert found["partitions"][0]["leader_epoch"] is None
    assert "its topics: t, t.x" in printed(
        capsys, "topics", "describe", str(log), "--topic", "no", code=2
    )


def test_create(tmp_path: Path, capsys: Capture) -> None:
    path = str(tmp_path / "new")
    options = ["--partitions", "3", "--config", "cleanup.policy=compact,delete"]
    text = printed(capsys, "topics", "create", path, "--topic", "a", *options)
    assert text == "Created topic a.\n"
    with sparklog.open(path) as log:
        assert log.topic("a").partitions == 3
        assert log.topic("a").config.cleanup_policy == ("compact", "delete")
    assert "exists" in printed(capsys, "topics", "create", path, "--topic", "a", code=2)
    assert printed(capsys, "topics", "create", path, "--topic", "a", "--if-not-exists") == ""
    made = json.loads(printed(capsys, "topics", "create", path, "--topic", "b", "--json"))
    assert (made["topic"], made["partition_count"]) == ("b", 1)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--topic", "a/b"], "other characters"),
        (["--topic", "a", "--config", "retention.ms"], "must have the form key=value"),
        (["--topic", "a", "--config", "retention.ms=-7"], "expected -1..2^63-1"),
        (["--topic", "a", "--config", "retain=1"], "unknown option retain"),
        (["--topic", "a", "--partitions", "0"], "not in the range"),
        ([], "Missing option '--topic'"),
    ],
)
def test_a_bad_creation_makes_no_log(
    options: list[str], says: str, tmp_path: Path, capsys: Capture
) -> None:
    assert says in printed(capsys, "topics", "create", str(tmp_path / "new"), *options, code=2)
    assert not (tmp_path / "new").exists()


def test_alter(log: Path, capsys: Capture) -> None:
    options = ["--topic", "t", "--partitions", "3", "--config", "segment.ms=9"]
    text = printed(capsys, "topics", "alter", str(log), *options, "--delete-config", "retention.ms")
    assert text == "Altered topic t.\n"
    with sparklog.open(log) as opened:
        info = opened.topic("t")
    assert (info.partitions, info.config.segment_ms) == (3, 9)
    assert info.config.retention_ms == -1  # the log's default
    fewer = ["--topic", "t", "--partitions", "1", "--config", "segment.ms=10"]
    assert "be reduced" in printed(capsys, "topics", "alter", str(log), *fewer, code=2)
    with sparklog.open(log) as opened:
        assert opened.topic("t").config.segment_ms == 9  # all of it or nothing
    nothing = ["topics", "alter", str(log), "--topic", "t"]
    assert "no change is requested" in printed(capsys, *nothing, code=2)


def test_delete(log: Path, capsys: Capture) -> None:
    told = printed(capsys, "topics", "delete", str(log), "--topic", "t.x")
    assert told.startswith("Deleted topic t.x. Until 20")
    assert told.endswith(f"restores it: sparklog topics undelete {log} --topic t.x\n")
    with sparklog.open(log) as opened:
        assert list(opened.topics()) == ["t"]
    assert "not in" in printed(capsys, "topics", "delete", str(log), "--topic", "t.x", code=2)
    gone = ["topics", "delete", str(log), "--topic", "t.x", "--if-exists"]
    assert printed(capsys, *gone) == ""
    assert json.loads(printed(capsys, *gone, "--json")) == {
        "topic": "t.x", "deleted": False, "undelete_ms": 0,
    }  # fmt: skip
    # A pattern is none here: "t." matched t.x.
    assert "not in" in printed(capsys, "topics", "delete", str(log), "--topic", ".*", code=2)


def test_undelete(log: Path, capsys: Capture) -> None:
    hour_ms = 3_600_000  # however long the next commands take
    with sparklog.open(log, "rw") as opened:
        opened.alter_topic("t.x", config={"file.delete.delay.ms": hour_ms})
        before, known = opened.read("t.x").read_all(), opened.topic("t.x")
    printed(capsys, "topics", "delete", str(log), "--topic", "t.x")
    shown = printed(capsys, "topics", "list", str(log), "--deleted")
    assert shown.split("\n")[1].split()[:3] == ["topic", "topic", "id"]
    assert known.id in shown
    (told,) = json.loads(printed(capsys, "topics", "list", str(log), "--deleted", "--json"))
    assert (told["topic"], told["topic_id"], told["partitions"]) == ("t.x", known.id, 1)
    assert 0 < told["left_ms"] <= hour_ms == told["until_ms"] - told["deleted_ms"]
    assert printed(capsys, "topics", "list", str(log), "--deleted", "--topic", "other.*") == ""
    back = printed(capsys, "topics", "undelete", str(log), "--topic", "t.x", "--as", "back")
    assert back == f"Topic t.x is back as back, with id {known.id}.\n"
    printed(capsys, "topics", "delete", str(log), "--topic", "back")
    undelete = ["topics", "undelete", str(log), "--topic", "back", "--topic-id", known.id]
    assert json.loads(printed(capsys, *undelete, "--json"))["topic_id"] == known.id
    with sparklog.open(log) as opened:
        columns = ["offset", "value"]
        assert opened.read("back", columns=columns).read_all() == before.select(columns)
    for options in ([], ["--now"]):
        printed(capsys, "topics", "delete", str(log), "--topic", "back", *options)
    assert printed(capsys, "topics", "list", str(log), "--deleted") == ""
    why = printed(capsys, "topics", "undelete", str(log), "--topic", "back", code=2)
    assert "file.delete.delay.ms is over" in why


def test_configs(log: Path, capsys: Capture) -> None:
    options = ["--topic", "t", "--add-config", "cleanup.policy=[compact,delete],segment.ms=7"]
    changed = ["configs", "alter", str(log), *options, "--delete-config", "retention.ms"]
    assert printed(capsys, *changed) == "Completed updating config for topic t.\n"
    text = printed(capsys, "configs", "describe", str(log), "--entity-name", "t")
    assert text.startswith("Dynamic configs for topic t are:\n")
    rows = [line.split() for line in text.splitlines() if "CONFIG" in line]
    assert [row[:3] for row in rows] == [
        ["cleanup.policy", "compact,delete", "DYNAMIC_TOPIC_CONFIG"],
        ["internal.segment.bytes", "200", "DYNAMIC_TOPIC_CONFIG"],
        ["retention.ms", "-1", "DYNAMIC_TOPIC_CONFIG"],
        ["segment.ms", "7", "DYNAMIC_TOPIC_CONFIG"],
    ]
    assert rows[3][3:] == ["604800000", "1..2^63-1"]
    found = json.loads(printed(capsys, "configs", "describe", str(log), "--all", "--json"))
    by_name = {entry["name"]: entry for entry in found["t.x"]}
    assert by_name["segment.bytes"]["source"] == "DEFAULT_CONFIG"
    assert (by_name["segment.idle.ms"]["own"], by_name["segment.ms"]["own"]) == (True, False)
    text = printed(capsys, "configs", "describe", str(log), "--topic", "t.x")
    assert [line.split()[:2] for line in text.splitlines() if "DYNAMIC_" in line] == [
        ["retention.ms", "-1"]
    ]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "no change is requested"),
        (["--delete-config", "segment.ms"], "segment.ms isn't set on topic t; the "),
        (["--add-config", "segment.ms=x"], "segment.ms=x: expected"),
        (["--add-config", "segment.ms=1,segment.ms=2"], "passed twice"),
        (["--add-config", "retention.ms=1", "--delete-config", "retention.ms"], "is both added"),
        (["--add-config", "no.such=1"], "unknown option no.such"),
    ],
)
def test_configs_that_cant_be(
    options: list[str], says: str, log: Path, capsys: Capture
) -> None:
    before = (log / "sparklog.topics").read_bytes()
    assert says in printed(capsys, "configs", "alter", str(log), "--topic", "t", *options, code=2)
    assert (log / "sparklog.topics").read_bytes() == before


COMMANDS = [
    ["topics", "list"], ["topics", "describe"], ["topics", "create", "--topic", "a"],
    ["topics", "alter", "--topic", "a", "--partitions", "2"], ["topics", "delete", "--topic", "a"],
    ["configs", "describe"], ["configs", "alter", "--topic", "a", "--add-config", "segment.ms=1"],
    ["log-dirs", "--describe"], ["get-offsets"], ["delete-records", "--offset", "a:0:1"],
]  # fmt: skip


def test_where_no_log_can_be_made(tmp_path: Path, capsys: Capture) -> None:
    """Paths that other commands refuse are tests/cli/test_open_log.py's."""
    (tmp_path / "file").write_text("x")
    (tmp_path / "dir" / "other").mkdir(parents=True)
    for name in ("file", "dir", "no/such"):
        assert run([*COMMANDS[2], str(tmp_path / name)]) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert str(tmp_path / name) in said.err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["dir", "file"]


def test_an_archive_is_read_only(log: Path, tmp_path: Path, capsys: Capture) -> None:
    bucket = tmp_path / "bucket"
    with sparklog.open(log, "rw") as opened:
        opened.alter_topic("t", config={"remote.storage.enable": "true"})
    assert run(["serve", str(log), "--remote", f"file://{bucket}", "--once", "--json"]) == 0
    capsys.readouterr()
    for url in (f"file://{bucket}", str(bucket)):
        assert printed(capsys, "topics", "list", url) == "t\n"
        assert printed(capsys, "get-offsets", url, "--time", "earliest").endswith("t:1:2\n")
        text = printed(capsys, "topics", "describe", url)
        assert "remote only" in text
        for command in COMMANDS[2:5] + COMMANDS[6:7] + COMMANDS[9:]:
            says = printed(capsys, *[each if each != "a" else "t" for each in command], url, code=2)
            assert "is an archive, which" in says


def test_a_log_that_is_open_elsewhere(log: Path, capsys: Capture) -> None:
    """Both write, one after the other, and each sees what the other did."""
    with sparklog.open(log, "rw") as other:
        assert printed(capsys, "topics", "create", str(log), "--topic", "new")
        other.append("new", pa.table({"value": ["x"]}))
        assert "new:0:1\n" in printed(capsys, "get-offsets", str(log))
        assert printed(capsys, "topics", "alter", str(log), "--topic", "new", "--partitions", "2")
        other.append("new", pa.table({"value": ["x"]}), partition=0)  # it catches up by a commit
        other.append("new", pa.table({"value": ["x"]}), partition=1)
        assert "new-1: begins at 1" in printed(
            capsys, "delete-records", str(log), "--offset", "new:1:-1"
        )
        assert printed(capsys, "topics", "delete", str(log), "--topic", "new")
        with pytest.raises(sparklog.UnknownTopicError):
            other.append("new", pa.table({"value": ["x"]}))


def test_a_directory_that_a_broker_has_open(log: Path, capsys: Capture) -> None:
    """Reading is fine; a change is refused, and none was made."""
    lock = LOCAL.open_lock(str(log / ".lock"))
    code = (
        "import sys, time; from sparklog.fs import LOCAL;"
        "lock = LOCAL.open_lock(sys.argv[1]);"
        "print(lock.try_lock(0, 0, exclusive=True), flush=True); sys.stdin.read()"
    )
    broker = subprocess.Popen(
        [sys.executable, "-c", code, str(log / ".lock")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    lock.close()
    assert broker.stdout is not None
    try:
        assert broker.stdout.readline() == "True\n"
        assert printed(capsys, "topics", "list", str(log)) == "t\nt.x\n"
        before = sorted(log.rglob("*"))
        for command in COMMANDS[2:5] + COMMANDS[6:7] + COMMANDS[9:]:
            given = [each.replace("a:0", "t:0") if each != "a" else "t" for each in command]
            assert "broker" in printed(capsys, *given, str(log), code=1)
        assert sorted(log.rglob("*")) == before
    finally:
        broker.communicate()
