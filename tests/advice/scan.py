"""Collects the advice that sparklog's messages give, from its source code.

A message is every string of the package that is not documentation. Values in it are shown as {}.
Its advice is each clause that begins with an imperative ("restore it from a copy"), and each
clause that quotes a command (`sparklog verify`).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from typing import Final

import click

from sparklog.cli.app import app
from tests.paths import ROOT

_VERBS: Final = """
accept add adopt alter append archive ask begin bring build call cancel cast chmod choose chown
clean close collect commit compare complete configure connect convert copy correct create decide
declare decode decrease delete disable do download drop enable encode end erase exclude export
fill find finish fix force forget fork free give go grant hand have ignore import include increase
install join keep kill leave let look make merge migrate mount move name open overwrite pass pick
place print put raise read rebuild recover redo register release remove rename reopen repair
repeat replace request reset restart restore retry rewrite roll run save say see select send set
share ship shorten show skip specify split stage start stay stop supply switch take transform
trust truncate try turn undelete unset update upgrade upload use verify wait write
"""
IMPERATIVES: Final = frozenset(_VERBS.split())
"""Verbs that begin advice. A message that advises by another verb needs that verb here."""

_OPENINGS: Final = (
    "first", "for", "if", "or", "otherwise", "then", "to", "when", "with", "without",
)  # fmt: skip
"""Words before the imperative: "with the query stopped, move it back"."""

_DOCUMENTATION: Final = ("doc", "epilog", "help", "metavar", "short_help")
"""Keyword arguments that hold documentation."""

_PAGES: Final = (
    "cli/app.py", "cli/arguments.py", "cli/examples.py", "service/metrics/names.py",
    "testing/", "ui/report/",
)  # fmt: skip
"""Modules whose strings are parts of pages, help, lists of metrics, and contracts of tests."""

_CLAUSE: Final = re.compile(r"(?<=[:;.!?])\s+|\n+")
_PART: Final = re.compile(r", (?:(?:and|or|then) )?")
_COMMAND: Final = re.compile(r"(?<![\w./-])sparklog ([a-z][\w-]*)")


@cache
def commands() -> dict[str, click.Command]:
    """Return {"topics create": its command} of all commands and groups."""
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


@cache
def texts(*, with_help: bool) -> tuple[tuple[str, str], ...]:
    """Return every string of the package but docstrings, as (place, text)."""
    return tuple(
        text
        for path in sorted((ROOT / "sparklog").rglob("*.py"))
        for text in _strings(path.read_text(), str(path.relative_to(ROOT)), with_help=with_help)
    )


def _strings(source: str, name: str, *, with_help: bool) -> Iterator[tuple[str, str]]:
    nodes = list(ast.walk(ast.parse(source)))
    skipped: set[ast.AST] = set()
    for node in nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            skipped.add(node.value)
        if isinstance(node, ast.JoinedStr):
            skipped |= set(node.values)
        if isinstance(node, ast.keyword) and node.arg in _DOCUMENTATION and not with_help:
            skipped |= set(ast.walk(node.value))
    for node in nodes:
        place = f"{name}:{getattr(node, 'lineno', 0)}"
        if node in skipped:
            continue
        if isinstance(node, ast.JoinedStr):
            parts = [str(v.value) if isinstance(v, ast.Constant) else "{}" for v in node.values]
            yield place, "".join(parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield place, node.value


@cache
def advice() -> dict[str, tuple[str, ...]]:
    """Return {advice: the places that give it} of the whole package."""
    found: dict[str, list[str]] = {}
    for place, text in texts(with_help=False):
        if not place.removeprefix("sparklog/").startswith(_PAGES):
            for clause in advice_in(text):
                found.setdefault(clause, []).append(place)
    return {clause: tuple(places) for clause, places in sorted(found.items())}


def advice_in(text: str) -> Iterator[str]:
    """Yield the clauses of a message that tell the user what to do."""
    for number, clause in enumerate(_CLAUSE.split(text)):
        words = " ".join(clause.split()).strip(" :;.,#").removeprefix("(")
        is_label = number == 0 and words[:1].isupper()
        if " " in words and (_quotes_command(words) or (not is_label and _advises(words))):
            yield words


def _quotes_command(clause: str) -> bool:
    return any(name in commands() for name in _COMMAND.findall(clause))


def _advises(clause: str) -> bool:
    first, *rest = _PART.split(clause)
    verbs = [first.split()[0].lower()]
    if verbs[0] in _OPENINGS:
        verbs = [word.lower() for part in (first, *rest) for word in part.split()[:2]]
    inner = re.findall(r"\(([a-z]+) ", clause)
    return any(verb in IMPERATIVES for verb in (*verbs, *inner))
