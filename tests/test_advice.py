"""Commands and options that messages quote: they exist, spelled as the command line spells them.

Whether following the advice helps is tested beside the code that gives it, and in tests/damage.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

import click
import pytest

from sparklog.cli.app import app
from sparklog.cli.command import Command
from tests.paths import ROOT

COMMAND = re.compile(r"(?<![\w./-])sparklog ((?:[a-z][\w-]*)(?: [a-z][\w-]*)*)([^`;)]*)")
OPTION = re.compile(r"(?<![\w-])--([a-z][a-z-]*[a-z])")


def texts() -> Iterator[tuple[str, str]]:
    """Every string of the package but docstrings, as (place, text); values in it are {}."""
    for path in sorted((ROOT / "sparklog").rglob("*.py")):
        tree = ast.parse(path.read_text())
        skipped: set[ast.AST] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                skipped.add(node.value)
            if isinstance(node, ast.JoinedStr):
                skipped |= set(node.values)
        for node in ast.walk(tree):
            place = f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.JoinedStr):
                parts = [str(v.value) if isinstance(v, ast.Constant) else "{}" for v in node.values]
                yield place, "".join(parts)
            elif isinstance(node, ast.Constant) and node not in skipped:
                yield place, node.value if isinstance(node.value, str) else ""


@cache
def commands() -> dict[str, click.Command]:
    """{"topics create": its command} of all commands and groups."""
    found: dict[str, click.Command] = {}

    def walk(command: click.Command, name: str) -> None:
        found[name] = command
        if isinstance(command, click.Group):
            context = click.Context(command)
            for part in command.list_commands(context):
                below = command.get_command(context, part)
                assert below is not None
                walk(below, f"{name} {part}".strip())

    walk(app, "")
    return found


def options(command: click.Command) -> set[str]:
    """The options of a command, without their dashes."""
    spelled = [o for p in command.params for o in (*p.opts, *p.secondary_opts)]
    return {o[2:] for o in spelled if o.startswith("--")} | {"help"}


def quotes(text: str) -> Iterator[tuple[list[str], str]]:
    """Commands that a text quotes, as (words, what follows).

    Elsewhere the library's name is followed by words of a sentence: "sparklog did not write it". It
    is a command in a code span, behind a colon, and wherever the name of a command follows.
    """
    for match in COMMAND.finditer(text):
        words = match[1].split()
        is_marked = text[: match.start()].endswith(("`", ": ", "run "))
        if (is_marked or words[0] in commands()) and not words[0].startswith("kafka-"):
            yield words, match[2]


QUOTES = [(place, words, rest) for place, text in texts() for words, rest in quotes(text)]


def test_quotes_are_found() -> None:
    assert len(QUOTES) > 80
    assert ["topics", "undelete"] in [words for _, words, _ in QUOTES]


def test_commands_that_messages_quote_exist_with_their_options() -> None:
    wrong = []
    for place, words, rest in QUOTES:
        known = [" ".join(words[:n]) for n in range(len(words), 0, -1)]
        name = next((name for name in known if name in commands()), None)
        if name is None:
            wrong.append(f"{place}: there is no command: sparklog {' '.join(words)}")
            continue
        there = options(commands()[name])
        quoted = OPTION.findall(" ".join(words) + rest)
        wrong += [f"{place}: sparklog {name} has no --{o}" for o in quoted if o not in there]
    assert not wrong, "\n".join(wrong)


def test_a_command_that_does_not_exist_would_be_found() -> None:
    ((words, _),) = quotes("mend it (`sparklog verfy PATH --repair`); then go on")
    assert " ".join(words) not in commands()
    ((words, rest),) = quotes("mend it: `sparklog verify PATH --repare`")
    assert (words, OPTION.findall(rest)) == (["verify"], ["repare"])
    assert "repare" not in options(commands()["verify"])


@pytest.mark.parametrize(
    ("command", "message", "shown"),
    [
        ("fork", "begin later (leave_remote: from 5)", "begin later (--leave-remote: from 5)"),
        ("verify", "correct storage_options", "correct --storage-options"),
        ("kafka-users", "correct storage_options", "correct storage_options"),  # it has none
        ("handover", "node_id=3: leave it out", "--node-id=3: leave it out"),
        ("handover", "/data/node_id/x is a file", "/data/node_id/x is a file"),
        ("checkpoint fork", "give both log and new_log", "give both log and --new-log"),
    ],
)
def test_messages_spell_options_as_they_are_typed(command: str, message: str, shown: str) -> None:
    found = commands()[command]
    assert isinstance(found, Command)
    assert found.spelled(message) == shown
