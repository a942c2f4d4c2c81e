"""Paths without a log: every command refuses them in one wording, with exit code 2."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sparklog
from sparklog.cli import import_export
from sparklog.cli.app import run
from tests.cli.test_cli import Capture, kept
from tests.paths import GOLDEN

RETAIN = ["serve", "--once", "--task", "retain"]
READING = [
    ["commits", "PATH"],
    ["configs", "describe", "PATH"],
    ["consume", "PATH", "--topic", "t"],
    ["export", "PATH", "--topic", "t", "--to", "copy"],
    ["fork", "PATH", "new", "--time", "2099-01-01"],
    ["get-offsets", "PATH"],
    ["log-dirs", "PATH"],
    ["metrics", "PATH"],
    ["readers", "PATH"],
    ["ui", "PATH", "--export", "-"],
    ["tier", "status", "PATH"],
    ["topics", "list", "PATH"],
    ["topics", "describe", "PATH"],
    ["verify", "PATH"],
]
CHANGING = [
    ["serve", "PATH", "--once", "--task", "compact"],
    ["serve", "PATH", "--task", "compact", "--dry-run"],
    ["configs", "alter", "PATH", "--topic", "t", "--add-config", "retention.ms=1"],
    ["delete-records", "PATH", "--offset", "t:0:1"],
    ["produce", "PATH", "lines", "--topic", "t"],
    ["serve", "PATH", "--once", "--task", "retain"],
    ["serve", "PATH", "--task", "retain", "--dry-run"],
    ["verify", "PATH", "--give-up"],
    ["tier", "rebuild", "PATH"],
    ["topics", "alter", "PATH", "--topic", "t", "--partitions", "2"],
    ["topics", "delete", "PATH", "--topic", "t"],
    ["verify", "PATH", "--repair"],
]
WITH_JSON = [["verify", "PATH", "--json"], ["metrics", "PATH", "--json"]]


@pytest.fixture(params=[*READING, *CHANGING, *WITH_JSON], ids=" ".join)
def command(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: Any) -> list[str]:
    monkeypatch.chdir(tmp_path)
    Path("lines").write_text("a\n")
    return list(request.param)


def refused(command: list[str], path: str, capsys: Capture) -> str:
    before = kept(Path())
    assert run([path if word == "PATH" else word for word in command]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("Usage: sparklog ")
    assert "mode=" not in said.err and "Traceback" not in said.err
    assert kept(Path()) == before
    return " ".join(said.err.partition("Error: ")[2].split())


def test_no_log_looks_like_a_healthy_one(command: list[str], capsys: Capture) -> None:
    here = Path.cwd()
    for name, why in (("missing", "does not exist"), ("lines", "is a file")):
        said = refused(command, name, capsys)
        assert said.startswith(f"{here}/{name} {why}: pass the log's directory; ")
        assert said.endswith(("; `sparklog topics create` makes one", "PARTITIONS makes one"))
    Path("empty").mkdir()
    said = refused(command, "empty", capsys)
    assert said.startswith(f"{here}/empty contains no log: ")
    assert "Pass a log's directory" in said
    # Something else, with a name that could be a partition's.
    Path("other/jdk-17").mkdir(parents=True)
    Path("other/jdk-17/release").write_text("x")
    Path("other/t-0").write_text("no directory")
    assert refused(command, "other", capsys) == said.replace("empty", "other")


@pytest.mark.parametrize(
    "command",
    [
        ["topics", "list", "URL"],
        ["consume", "URL", "--topic", "t"],
        ["get-offsets", "URL"],
        ["export", "URL", "--topic", "t", "--to", "copy"],
        ["tier", "restore", "URL", "new"],
        ["tier", "rotate", "URL", "--keyring", "keys"],
        ["checkpoint", "points", "URL"],
        ["checkpoint", "points", "URL", "--json"],
        ["checkpoint", "restore", "URL", "new"],
    ],
    ids=" ".join,
)
def test_no_archive(
    command: list[str], tmp_path: Path, monkeypatch: Any, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("keys").write_text('{"current": "k", "keys": {"k": "%s="}}' % ("A" * 43))
    url = "memory://nothing" if command[0] == "checkpoint" else f"memory://{tmp_path.name}"
    command = [url if word == "URL" else word for word in command]
    assert run(command) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert re.search("neither a log nor an archive: use|no snapshot of a checkpoint: ", said.err)
    assert not Path("new").exists()


def test_a_broker_s_directory_is_a_log(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "meta.properties").write_text("version=1\n")
    assert run(["topics", "list", str(tmp_path)]) == 0
    assert run(["verify", str(tmp_path)]) == 0
    assert "0 partitions" in capsys.readouterr().out


def test_a_log_dir_that_is_still_empty(tmp_path: Path) -> None:
    first, second = str(tmp_path / "a"), str(tmp_path / "b")
    with sparklog.open(f"{first},{second}", "rw") as log:
        log.create_topic("t")
    assert run(["verify", f"{first},{second}"]) == 0


@pytest.mark.parametrize(
    "command",
    [
        ["history", "PATH"], ["verify", "PATH"], ["import", "PATH"], ["export", "PATH"],
        ["fork", "PATH", "new", "--to", "1"], ["reset", "PATH", "--to", "1"],
        ["archive", "PATH", "memory://x"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_no_checkpoint(command: list[str], tmp_path: Path, capsys: Capture) -> None:
    path = str(tmp_path / "none")
    assert run(["checkpoint", *[path if word == "PATH" else word for word in command]]) == 2
    words = f"{path} does not exist: pass the query's checkpointLocation"
    assert words in capsys.readouterr().err


def test_a_directory_named_twice(tmp_path: Path, capsys: Capture) -> None:
    assert run(["verify", f"{tmp_path},{tmp_path}/"]) == 2
    assert "named twice" in capsys.readouterr().err


def test_what_needs_more_than_an_archive(tmp_path: Path, capsys: Capture) -> None:
    for command in (["commits"], ["readers"], ["verify"], RETAIN, ["log-dirs"]):
        assert run([*command, "memory://x"]) == 2
        said = capsys.readouterr().err
        assert "archive" in said
        assert "sparklog tier restore" in said


@pytest.mark.parametrize(
    ("command", "instead"),
    [
        (["log-dirs", "URL"], "`sparklog topics describe`"),
        (
            ["verify", "URL", "--give-up"],
            "its partitions cannot be offline",
        ),
        (["tier", "status", "URL"], "`sparklog topics describe`"),
        (["tier", "rebuild", "URL"], "`sparklog topics describe`"),
        (["dump-log", "--files", "URL/00.log"], "`sparklog tier restore`"),
    ],
    ids=lambda value: "-".join(value[:2]) if isinstance(value, list) else "",
)
def test_what_works_on_files_says_what_to_use_for_a_store(
    command: list[str], instead: str, capsys: Capture
) -> None:
    """No store is asked for that: this one can't be reached."""
    url = "s3://no-such-bucket/logs"
    assert run([word.replace("URL", url) for word in command]) == 2
    said = capsys.readouterr().err
    assert instead in said
    assert url in said


@pytest.mark.parametrize(
    "command",
    [
        ["topics", "list", "URL"], ["readers", "URL"], [*RETAIN, "URL"],
        ["serve", "URL", "--once"], ["commits", "URL"],
        ["delete-records", "URL", "--offset", "t:0:0"],
        ["import", "URL", "--topic", "t", "--bootstrap-server", "localhost:1"],
        ["ui", "URL", "--export", "-"], ["fork", "URL", "URL-fork", "--time", "2100-01-01"],
        ["verify", "URL"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_store_is_asked_with_the_options_given(
    command: list[str], monkeypatch: Any, capsys: Capture
) -> None:
    """Whatever opens the store first: it gets what this names wrongly, and says so."""
    monkeypatch.setattr(import_export.KafkaSource, "check", lambda *_: None)
    command = [word.replace("URL", "s3://b/log") for word in command]
    assert run([*command, "--storage-options", '{"given": 1}']) != 0
    assert "unexpected keyword argument 'given'" in capsys.readouterr().err


def test_verify_takes_a_log_in_a_store(tmp_path: Path, capsys: Capture) -> None:
    url = f"file://{tmp_path}/logs"
    with sparklog.open(url, "rw") as log:
        log.create_topic("t")
        log.append("t", pa.table({"value": [b"a"]}))
    assert run(["verify", url]) == 0
    assert "1 partition, 1 segment" in capsys.readouterr().out
    assert run(["verify", url, "--repair"]) == 0
    capsys.readouterr()
    entry = max((tmp_path / "logs").glob("ledger-*/*"))
    entry.write_bytes(entry.read_bytes()[:-1] + b"!")
    assert run(["verify", url, "--json"]) == 1
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert finding["file"].endswith(entry.name)
    assert (finding["first"], finding["end"]) == (0, 1)


@pytest.mark.parametrize("words", [
    [*RETAIN, "PATH"], ["serve", "PATH", "--once"], ["serve", "PATH"],
    ["erase", "PATH", "--topic", "t", "--key", "k"],
    ["verify", "PATH", "--give-up"],
], ids=" ".join)  # fmt: skip
def test_a_dry_run_takes_no_brokers_directory_over(
    tmp_path: Path, capsys: Capture, words: list[str]
) -> None:
    path = tmp_path / "broker"
    shutil.copytree(GOLDEN / "kafka-4.1" / "logdir" / "plain.none-0", path / "t-0")
    before = kept(path)
    assert run([str(path) if word == "PATH" else word for word in [*words, "--dry-run"]]) == 2
    assert f"{path} is a broker's directory" in capsys.readouterr().err
    assert kept(path) == before
    if words[:4] == RETAIN:
        with sparklog.open(path, "rw"):
            pass
        assert run([*RETAIN, str(path), "--dry-run"]) == 0
