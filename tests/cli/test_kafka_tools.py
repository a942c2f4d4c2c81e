"""Commands as Kafka's documentation has them, with the log's path where the server's address was.

Each in kafka_documentation.txt runs; or a sentence says why it means nothing, or what does it.
"""

import io
import itertools
import shlex
from pathlib import Path

import click
import pyarrow as pa
import pytest

import sparklog
from sparklog.cli.app import app, run
from sparklog.cli.command import DROPPED
from sparklog.cli.kafka_tools import TOOLS, UNSUPPORTED_FLAGS, UNSUPPORTED_TOOLS

Capture = pytest.CaptureFixture[str]


def _documented() -> tuple[list[str], dict[str, str]]:
    """The commands that run, and {command: what is said of one that means nothing here}."""
    text = Path(__file__).with_name("kafka_documentation.txt").read_text()
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    refused = {
        command: said.strip().removeprefix("=> ")
        for command, said in itertools.pairwise(lines)
        if said.startswith(" ")
    }
    return [c for c in lines if c not in refused and not c.startswith(" ")], refused


RUNS, REFUSED = _documented()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("docs")
    (path / "offsets.json").write_text(
        '{"partitions": [{"topic": "quickstart-events", "partition": 0, "offset": 1}], "version":1}'
    )
    return path


def words(line: str, folder: Path, log: str = "log") -> list[str]:
    log = str(folder / log)
    given = line.replace("localhost:9092", log).replace("LOG", log)
    return [
        str(folder / word) if word == "offsets.json" else word for word in shlex.split(given)
    ]


def test_every_command_that_means_something_runs(
    folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = {}
    for line in RUNS:
        stdin = io.TextIOWrapper(io.BytesIO(b"This is my first event\nThis is my second event\n"))
        monkeypatch.setattr("sys.stdin", stdin)
        code = run(words(line, folder))
        out, err = capsys.readouterr()
        assert code == 0, (line, err)
        said[line] = out
    assert said[RUNS[0]] == "Created topic quickstart-events.\n"
    assert said[RUNS[3]] == "This is my first event\nThis is my second event\n"
    assert said[RUNS[15]] == "my-topic\nquickstart-events\n"
    assert said[RUNS[17]] == "Offset:0\tThis is my first event\n"
    assert said[RUNS[26]] == "quickstart-events:0:2\n"
    assert "quickstart-events-0: begins at 1\n" in said[RUNS[29]]


@pytest.mark.parametrize("line", REFUSED)
def test_what_means_nothing_says_what_does(line: str, folder: Path, capsys: Capture) -> None:
    # Another log: the documented commands say all that theirs has.
    with sparklog.open(folder / "refused", "rw") as log:
        log.create_topic("t", if_not_exists=True)
    assert run(words(line, folder, "refused")) == 2
    out, err = capsys.readouterr()
    assert REFUSED[line] in " ".join(err.split())
    assert "Traceback" not in err and out == ""


@pytest.mark.parametrize("name", [*TOOLS, *UNSUPPORTED_TOOLS])
def test_a_tool_is_known_by_its_names(name: str, capsys: Capture) -> None:
    for spelled in (f"kafka-{name}.sh", f"kafka-{name}", name):
        code = run([spelled, "--help"])
        out, err = capsys.readouterr()
        if name in TOOLS:
            assert code == 0 and out.startswith(f"Usage: sparklog {TOOLS[name][0]} ")
        else:
            assert code == 2 and UNSUPPORTED_TOOLS[name] in err


@pytest.mark.parametrize("name", [name for name in DROPPED if " " not in name])
def test_a_dropped_command_names_the_one_to_use(name: str, capsys: Capture) -> None:
    """With whatever arguments it was given, and the named command takes its own."""
    for given in ([name], [f"kafka-{name}.sh"], [name, "/data/log", "--json"]):
        assert run(given) == 2
        assert f"{given[0]} was removed: {DROPPED[name]}" in capsys.readouterr().err
    _, command, *arguments = DROPPED[name].split("`")[1].split()
    found = app.get_command(click.Context(app), command)
    assert found is not None
    found.make_context(command, arguments)  # click.UsageError if there is no such option


@pytest.mark.parametrize("name", [name for name in DROPPED if " " in name])
def test_a_dropped_command_of_a_group_names_the_way_to_go(name: str, capsys: Capture) -> None:
    """Also where the group has a default command, which takes the name for a path otherwise."""
    for given in (name.split(), [*name.split(), "/data/log"]):
        assert run(given) == 2
        assert f"{given[1]} was removed: {DROPPED[name]}" in capsys.readouterr().err


@pytest.mark.parametrize("flag", UNSUPPORTED_FLAGS)
def test_no_command_has_a_flag_that_means_nothing(flag: str, folder: Path, capsys: Capture) -> None:
    """Of all of Kafka's tools: each says so, none with a traceback."""
    for name, (command, *_) in TOOLS.items():
        if (command, flag) == ("produce", "--timeout"):
            continue  # how long a batch waits for more: Kafka's other meaning of it
        actions = dict.fromkeys(["topics", "consumer-groups"], "--list")
        action = {**actions, "configs": "--describe"}.get(name)
        assert run([command, *([action] if action else []), flag, "x"]) == 2
        err = capsys.readouterr().err
        assert f"{flag} has no meaning here: {UNSUPPORTED_FLAGS[flag]}" in err, name


def test_a_path_is_given_once_and_by_either_name(folder: Path, capsys: Capture) -> None:
    path = str(folder / "both")
    with sparklog.open(path, "rw") as log:
        log.create_topic("t")
        log.append("t", pa.table({"value": ["x"]}))
    for given in (["--list", path], [path, "--list"], ["list", path], ["list", "--bootstrap-server",
                  path], [f"--bootstrap-server={path}", "--list"]):  # fmt: skip
        assert run(["topics", *given]) == 0
        assert capsys.readouterr().out == "t\n"
    for given, why in (
        (["list", path, "--bootstrap-server", path], "unexpected extra argument"),
        (["list", "--bootstrap-server", path, f"--bootstrap-server={path}"], "passed twice"),
        (["list", "--bootstrap-server"], "requires an argument"),
        (["list", "localhost:9092"], "looks like a server's address"),
        (["create", "--topic", "t", "--bootstrap-server", "h1:9092,h2:9092"], "h1:9092 looks like"),
    ):
        assert run(["topics", *given]) == 2
        assert why in capsys.readouterr().err


def test_a_file_to_produce_stays_behind_the_path(folder: Path, capsys: Capture) -> None:
    (folder / "lines.txt").write_text("one\ntwo\n")
    path = str(folder / "files")
    options = ["--topic", "t", "--create", "1", "--bootstrap-server", path]
    assert run(["produce", *options, str(folder / "lines.txt")]) == 0
    capsys.readouterr()
    assert run(["consume", path, "--topic", "t"]) == 0
    assert capsys.readouterr().out == "one\ntwo\n"


def test_configs_from_a_file(folder: Path, capsys: Capture) -> None:
    path, file = str(folder / "configured"), folder / "configs.properties"
    with sparklog.open(path, "rw") as log:
        log.create_topic("t")
    file.write_text("# of the topic\nretention.ms = 5000\ncleanup.policy: compact,delete\n\n! x\n")
    options = ["--alter", "--entity-type", "topics", "--entity-name", "t", path]
    assert run(["configs", *options, "--add-config-file", str(file)]) == 0
    with sparklog.open(path) as log:
        config = log.topic("t").config
    assert (config.retention_ms, config.cleanup_policy) == (5000, ("compact", "delete"))
    both = [*options, "--add-config-file", str(file), "--add-config", "retention.ms=1"]
    assert run(["configs", *both]) == 2
    assert "--add-config-file exclude each other" in capsys.readouterr().err


def test_a_command_that_is_mistyped(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topics", "lst", "log"]) == 2
    assert "No such command 'lst'. Did you mean list?" in capsys.readouterr().err
    assert run(["topics", "log"]) == 2
    assert "Command must include exactly one action" in capsys.readouterr().err
