"""Commands and options that messages quote: they exist, spelled as the command line spells them.

Whether the advice helps is tested by the tests that `advice.txt` names, and in tests/damage.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import click
import pytest

from sparklog.cli.command import Command
from tests.advice.scan import commands, texts
from tests.paths import ROOT

COMMAND = re.compile(r"(?<![\w./-])sparklog ((?:[a-z][\w-]*)(?: [a-z][\w-]*)*)([^`;)]*)")
OPTION = re.compile(r"(?<![\w-])--([a-z][a-z-]*[a-z])")


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


PAGES = [
    ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "examples" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "sparklog").rglob("*.md")),
    *(ROOT / "sparklog/service/metrics" / name for name in ("alerts.yml", "dashboard.json")),
]  # fmt: skip


def test_commands_that_messages_quote_exist_with_their_options() -> None:
    found = [
        (place, *quote) for place, text in texts(with_help=True) for quote in quotes(text)
    ]
    assert len(found) > 80
    assert ["topics", "undelete"] in [words for _, words, _ in found]
    assert not unknown(found), "\n".join(unknown(found))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_that_a_page_mentions_exist_with_their_options(page: Path) -> None:
    wrong = unknown((str(page), *quote) for quote in mentioned(page.read_text()))
    assert not wrong, "\n".join(wrong)


def mentioned(page: str) -> Iterator[tuple[list[str], str]]:
    """Commands in a page's code spans, and those that begin a line in its blocks of code."""
    blocks = re.findall(r"^```.*?^```", page, re.MULTILINE | re.DOTALL)
    lines = [line.strip().removeprefix("$ ") for block in blocks for line in block.splitlines()]
    prose = re.sub(r"^```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL)
    spans = [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose)]
    for text in (*lines, *spans):
        match = COMMAND.match(text)
        if match is not None and not match[1].startswith("kafka-"):
            yield match[1].split(), match[2]


def unknown(quotes: Iterable[tuple[str, list[str], str]]) -> list[str]:
    """Return what is wrong with quoted commands, given as (place, words, what follows)."""
    wrong = []
    for place, words, rest in quotes:
        known = [" ".join(words[:n]) for n in range(len(words), 0, -1)]
        name = next((name for name in known if name in commands()), None)
        if name is None:
            wrong.append(f"{place}: there is no command: sparklog {' '.join(words)}")
            continue
        there = options(commands()[name])
        quoted = OPTION.findall(" ".join(words) + rest)
        wrong += [f"{place}: sparklog {name} has no --{o}" for o in quoted if o not in there]
    return wrong


def test_a_command_that_does_not_exist_would_be_found() -> None:
    ((words, _),) = quotes("mend it (`sparklog verfy PATH --repair`); then go on")
    assert " ".join(words) not in commands()
    ((words, _),) = mentioned("```console\n$ sparklog verfy PATH\n```\n")
    assert " ".join(words) not in commands()
    ((words, _),) = mentioned("It is checked by `sparklog verfy`. sparklog is a library")
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
        ("checkpoint fork", "log and new_log differ", "log and --new-log differ"),
    ],
)
def test_messages_spell_options_as_they_are_typed(command: str, message: str, shown: str) -> None:
    found = commands()[command]
    assert isinstance(found, Command)
    assert found.spelled(message) == shown
