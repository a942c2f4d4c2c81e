"""The calls that each command's help shows: each stands on one line, and the command takes it."""

import shlex

import pytest
from click.testing import CliRunner

from sparklog.cli.app import app
from sparklog.cli.examples import EXAMPLES, examples
from tests.reference import commands


def test_each_command_has_some_and_takes_them(tmp_path) -> None:
    for name in ("keys.json", "keys.txt"):
        (tmp_path / name).touch()
    found = {" ".join(words): command for words, command in commands(app)}
    assert found.keys() == EXAMPLES.keys()  # of a new command: put it into sparklog/cli/examples.py
    for words, command in found.items():
        assert 1 <= len(EXAMPLES[words]) <= 3
        for line in EXAMPLES[words]:
            given = shlex.split(line.replace("/etc/sparklog", str(tmp_path)))
            for sign in (">", ">>", "<"):
                given = given[: given.index(sign)] if sign in given else given
            # click.UsageError if an option isn't there any more
            with command.make_context(words, given):
                pass


@pytest.mark.parametrize("words", ["verify", "topics create", "checkpoint restore"])
def test_help_shows_each_on_one_line(words: str) -> None:
    said = CliRunner().invoke(app, [*words.split(), "--help"], prog_name="sparklog").output
    assert "\nExamples:\n" + "".join(f"  {line}\n" for line in examples(words)) in said


def test_a_group_has_none() -> None:
    assert "Example" not in CliRunner().invoke(app, ["topics", "--help"]).output


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["topic", "list"], "No such command 'topic'. Did you mean 'topics'?"),
        (["checkpoint", "histroy"], "No such command 'histroy'. Did you mean 'history'?"),
        (["nonsense"], "No such command 'nonsense'."),
        (["kafka-uploads"], "No such command 'kafka-uploads'."),
    ],
)
def test_a_command_that_is_misspelt_is_told_what_is_meant(given: list[str], said: str) -> None:
    done = CliRunner().invoke(app, given)
    assert done.exit_code == 2
    assert done.output.endswith(f"Error: {said}\n")
