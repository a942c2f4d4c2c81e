"""The group of all commands: what is imported when, how lists, completion and refusals look."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from sparklog.cli.app import app, run
from sparklog.cli.command import Command, LazyGroup
from sparklog.errors import InvalidRequestError

Capture = pytest.CaptureFixture[str]
_HEAVY = "sorted({'pyarrow', 'numpy', 'pyspark', 'rich'} & set(sys.modules))"


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment},
        capture_output=True, text=True, timeout=240,
    )  # fmt: skip


def test_help_does_without_arrow() -> None:
    """So do the version, a mistyped command and the completion of a command's name."""
    code = (
        "import os, sys; from sparklog.cli.app import app, run; "
        "assert run(['--help']) == run(['--version']) == 0; "
        "assert run(['nonsense']) == run(['--nonsense']) == 2; "
        "os.environ |= {'_SPARKLOG_COMPLETE': 'bash_complete', 'COMP_WORDS': 'sparklog to', "
        "'COMP_CWORD': '1'}; "
        f"import atexit; atexit.register(lambda: print({_HEAVY})); "
        "run([])"
    )
    done = python(code)
    lines = done.stdout.splitlines()
    assert lines[-2:] == ["plain,topics", "[]"], done.stderr


def test_the_list_of_commands_is_whole() -> None:
    """Each is there under its name, and none of the texts is cut at 80 columns."""
    assert isinstance(app, LazyGroup)
    context = click.Context(app)
    told = CliRunner().invoke(app, ["--help"], terminal_width=80).output
    parts = [part for part in told.split("\n\n") if part.partition(":\n")[0] in app.headings]
    listed = [line for part in parts for line in part.splitlines()[1:]]
    assert [line.split()[0] for line in listed] == [
        name for below in app.headings.values() for name in below
    ]
    assert sorted(line.split()[0] for line in listed) == app.list_commands(context)
    for heading in app.headings:
        assert f"\n{heading}:\n" in told
    assert not [line for line in listed if line.endswith("...")]
    for name in app.list_commands(context):
        command = app.get_command(context, name)
        assert command is not None and command.name == name
        assert isinstance(command, Command | click.Group)
        for below in command.commands.values() if isinstance(command, click.Group) else ():
            assert isinstance(below, Command)  # else its refusals look otherwise
    assert app.get_command(context, "none") is None


def test_names_below_a_command_and_options_are_completed() -> None:
    def complete(*words: str) -> list[str]:
        found = ShellComplete(app, {}, "sparklog", "_X").get_completions(
            list(words[:-1]), words[-1]
        )
        return [item.value for item in found]

    assert complete("co") == ["commits", "configs", "consume"]
    assert complete("topics", "de") == ["delete", "describe"]
    assert complete("verify", "--re") == ["--repair"]
    assert complete("checkpoint", "re") == ["rebuild", "reset", "restore", "rewrite"]
    assert complete("checkpoint", "e") == ["erase", "export"]
    assert complete("checkpoint", "bootstrap", "--o") == ["--output-mode"]


def test_refusals_have_one_look(capsys: Capture, tmp_path: Path) -> None:
    """Click's, a command's own and the library's."""
    seen = []
    for arguments in (
        ["topics", "describe"],
        ["topics", "describe", str(tmp_path), "--storage-options", "x"],
        ["topics", "describe", str(tmp_path / "none")],
    ):
        assert run(arguments) == 2
        said = capsys.readouterr()
        assert said.out == ""
        seen.append(said.err.splitlines())
    for lines in seen:
        assert lines[:3] == [
            "Usage: sparklog topics describe [OPTIONS] PATH",
            "Try 'sparklog topics describe --help' for help.",
            "",
        ]
        assert lines[3].startswith("Error: ") and len(lines) == 4


def test_a_refusal_is_one_line() -> None:
    def refuse() -> None:
        raise InvalidRequestError("no\n  way")

    with pytest.raises(click.UsageError, match=r"^no way$"):
        Command("x", callback=refuse).main([], standalone_mode=False)


@pytest.mark.parametrize("where", ["sparklog.cli.app", "sparklog.service"])
def test_ctrl_c_while_modules_are_imported(where: str, tmp_path: Path) -> None:
    """Before click takes over, and when a command's own modules come."""
    code = f"""
import importlib.abc, os, signal, sys
class Hook(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == {where!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Hook())
sys.argv = ["sparklog", "verify", {str(tmp_path)!r}]
from sparklog.cli import main
main()
"""
    done = python(code)
    assert (done.returncode, done.stdout) == (130, "")
    assert "Traceback" not in done.stderr


def test_streams_that_are_closed(tmp_path: Path) -> None:
    """`>&-` and the like: no file of a log gets the number of a standard stream."""
    cli, log, file = f"{sys.executable} -m sparklog.cli", tmp_path / "log", tmp_path / "lines"
    file.write_text("one\n")
    for script in (
        f"{cli} produce {log} {file} - --topic t --create 1 <&- >&- 2>&-",
        f"{cli} consume {log} --topic t >&-",
    ):
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stderr
        assert done.stdout == "" and "Traceback" not in done.stderr
    assert run(["verify", str(log)]) == 0
    assert run(["consume", str(log), "--topic", "t", "--max-messages", "1"]) == 0


def test_a_full_disk_and_a_reader_that_went(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").touch()
    command = f"{sys.executable} -m sparklog.cli verify {tmp_path} --json"
    full = subprocess.run(f"{command} > /dev/full", shell=True, capture_output=True, text=True)
    words = "Error: standard output: No space left on device\n"
    assert (full.returncode, full.stderr) == (1, words)
    reading, writing = os.pipe()
    os.close(reading)  # before it writes anything
    script = f"{command}; exit $?"
    gone = subprocess.run(
        ["bash", "-c", script], stdout=writing, stderr=subprocess.PIPE, text=True
    )
    os.close(writing)
    assert (gone.returncode, gone.stderr) == (141, "")


def test_ctrl_c_in_a_command(capsys: Capture, monkeypatch: Any, tmp_path: Path) -> None:
    def stopped(*_: Any, **__: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr("sparklog.cli.verify.verify_log", stopped)
    (tmp_path / "meta.properties").touch()
    assert run(["verify", str(tmp_path)]) == 130
    said = capsys.readouterr()
    assert (said.out, said.err.strip()) == ("", "")


def test_the_package_runs_as_a_module() -> None:
    """By the Python that is asked for, where the PATH has another one's `sparklog`, or none."""
    done = subprocess.run(
        [sys.executable, "-m", "sparklog", "--version"], capture_output=True, text=True, timeout=240
    )
    assert done.stdout == python("from sparklog.cli.app import run; run(['--version'])").stdout
    assert done.stdout.startswith("sparklog ")
