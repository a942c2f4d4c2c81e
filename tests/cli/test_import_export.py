"""`sparklog export` as users and scripts meet it; with a broker: tests/kafka/test_moving.py."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog.cli import import_export
from sparklog.cli.app import run
from sparklog.tools.moving import exporting, import_kafka

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = str(tmp_path / "log")
    with sparklog.open(path, "rw") as log:
        log.create_topic("t", 2)
        log.create_topic("empty")
        for p in (0, 1):
            log.append("t", pa.table({"value": [f"{p} {n}" for n in range(10)]}), partition=p)
    return path


def test_to_a_log_dir(log: str, tmp_path: Path, capsys: Capture) -> None:
    to = str(tmp_path / "to")
    command = ["export", log, "--topic", "t", "--to", to, "--from-offset", "0=4",
               "--from-offset", "1=10"]  # fmt: skip
    assert run([*command, "--to-offset", "0=6"]) == 0
    out = capsys.readouterr()
    assert " t               0       4     6 " in out.out
    assert out.err.startswith("2 records in ")
    assert run([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["offsets"] == {"0": [6, 10]}
    with sparklog.open(to) as other:
        assert other.offsets("t") == {0: (4, 10), 1: (10, 10)}
        found = other.read("t", columns=["offset", "value"]).read_all().to_pylist()
        assert found == [{"offset": n, "value": b"0 %d" % n} for n in range(4, 10)]
    assert run(command) == 0
    assert capsys.readouterr().err == f"nothing new to {to}\n"


@pytest.mark.parametrize("option", ["--to", "--to-parquet", "--to-delta"])
def test_tables_are_no_targets(
    log: str, tmp_path: Path, capsys: Capture, option: str
) -> None:
    to = str(tmp_path / "x.parquet")
    assert run(["export", log, "--topic", "t", option, to]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"no longer write tables ({to}): read the topic with Spark" in said
    assert not Path(to).exists()


def test_by_time(log: str, tmp_path: Path, capsys: Capture) -> None:
    to = str(tmp_path / "copy")
    past = ["--from-time", "2020-01-01", "--to-time", "2021-01-01"]
    assert run(["export", log, "--topic", "t", "--to", to, *past, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["records"] == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "pass either --to"),
        (["--to", "a", "--to-kafka", "b"], "pass either --to"),
        (["--to", "a", "--from-offset", "5"], "has several partitions"),
        (["--to", "a", "--from-offset", "x=5"], "must have the form OFFSET or PARTITION=OFFSET"),
        (["--to", "a", "--from-offset", "0=1", "--from-time", "2020-01-01"], "exclude each other"),
        (["--to", "a", "--kafka-topic", "k"], "require --to-kafka"),
        (["--to", "a", "--from-offset", "9=1"], "not among the partitions to read"),
        (["--to", "a", "--from-offset", "0=3", "--to-offset", "0=1"],
         "t-0 would begin at 3 and end at 1"),
        (["--to", "copy", "--from-time", "2021-01-01", "--to-time", "2020-01-01"],
         "begin at 2021-01-01T00:00:00+00:00 and end at 2020-01-01T00:00:00+00:00"),
    ],
)
def test_wrong_use(
    log: str, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch,
    arguments: list[str], words: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert run(["export", log, "--topic", "t", *arguments]) == 2
    assert words in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "a").exists() and not (tmp_path / "copy").exists()


def test_an_end_before_the_log_start_that_nobody_named_is_no_wrong_use(
    log: str, tmp_path: Path, capsys: Capture
) -> None:
    """A range by time that ends before partition 1 begins at offset 5: nothing of that one."""
    command = ["export", log, "--topic", "t", "--to", str(tmp_path / "copy"), "--json",
               "--from-offset", "1=5", "--to-time", "2020-01-01"]  # fmt: skip
    assert run(command) == 0
    assert json.loads(capsys.readouterr().out)["records"] == 0


def test_nowhere(log: str, tmp_path: Path, capsys: Capture) -> None:
    assert run(["export", log, "--topic", "none", "--to", str(tmp_path / "copy")]) == 2
    (tmp_path / "link").symlink_to(log)
    for itself in (log, str(tmp_path / "link"), f"file:{log}"):
        assert run(["export", log, "--topic", "t", "--to", itself]) == 2
        assert "is the log itself" in capsys.readouterr().err
    assert run(["export", log, "--topic", "t", "--to", str(tmp_path / "no" / "such" / "log")]) == 2
    assert "does not exist" in capsys.readouterr().err
    assert run(["export", log, "--topic", "t", "--to", str(tmp_path / "copy"),
                "--from-offset", "0=99"]) == 1  # fmt: skip
    assert "has offsets [0, 10)" in capsys.readouterr().err


def test_no_broker(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    from sparklog.tools.moving import kafka_client

    monkeypatch.setattr(kafka_client, "TIMEOUT_S", 0.3)
    command = ["import", str(tmp_path / "log"), "--topic", "t", "--bootstrap-server"]
    assert run([*command, "localhost:1"]) == 1
    assert "topic t at localhost:1: " in capsys.readouterr().err
    assert not (tmp_path / "log").exists()  # no log is made for a topic that nobody has seen
    assert run([*command, "localhost:1", "--config", "retention.ms=soon"]) == 2
    assert "retention.ms" in capsys.readouterr().err
    (tmp_path / "bad").write_text("nonsense\n")
    assert run([*command, "localhost:1", "--command-config", str(tmp_path / "bad")]) == 2
    assert "line 1 must have the form key=value" in capsys.readouterr().err
    (tmp_path / "unknown").write_text("# a comment\nsasl.jaas.config=x\n")
    assert run([*command, "localhost:1", "--command-config", str(tmp_path / "unknown")]) == 2


def test_a_copy_that_was_stopped_is_no_success(
    log: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For `sparklog import ... && kafka-topics --delete ...`."""
    half = {"topic": "t", "records": 3, "offsets": {0: (0, 3)}, "stopped": True}
    monkeypatch.setattr(import_export.KafkaSource, "check", lambda *_: None)
    monkeypatch.setattr(
        import_export, "import_topic",
        lambda *_, **__: import_kafka.Imported(kafka_topic="t", **half),
    )  # fmt: skip
    monkeypatch.setattr(
        import_export, "export_kafka",
        lambda *_, **__: exporting.Exported(to="localhost:1/t", **half),
    )  # fmt: skip
    for command in (["import", log, "--bootstrap-server"], ["export", log, "--to-kafka"]):
        assert run([*command, "localhost:1", "--topic", "t"]) == 130
        assert "; stopped, run the command again to continue" in capsys.readouterr().err
        assert run([*command, "localhost:1", "--topic", "t", "--json"]) == 130
        assert json.loads(capsys.readouterr().out)["stopped"] is True
