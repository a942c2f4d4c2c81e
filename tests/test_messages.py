"""The form of all error and log messages: where, what happened, what to do.

The test collects the texts from the source code. Whether the advice in a message helps is tested
in tests/advice; how plain the English is, in tests/test_plain_english.py.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from sparklog.config import KEYS, LOG_KEYS
from sparklog.kafka.options import ENDPOINT_KEYS
from sparklog.service.options import SERVICE_KEYS
from sparklog.sink import options as sink
from sparklog.source import options as source
from sparklog.tiered.reading.options import REMOTE_KEYS
from tests.advice.scan import commands
from tests.advice.test_commands import options
from tests.paths import ROOT
from tests.plain_english import is_log_call, message_of

_FRAGMENTS = {
    r"\bwant (?:a|an|at|one|only|exactly|the|no|true|[\[{(\"'])": "X must be ...",
    r"\b(?:try it|look|see to it)\b": "a verb of the user's action",
    r"  ": "a single space",
    r"[^.]\.$": "no full stop at the end",
    r"^\s|\s$": "no space at either end",
    r"!": "no exclamation mark",
    r"\b(?:please|sorry|oops)\b": "no apology",
}
"""{regular expression: the form instead}."""
_OPTION = re.compile(r"(?<![\w-])--([a-z][a-z0-9-]*[a-z0-9])")
_KEY = re.compile(
    r"\b[a-z]+(?:\.[a-z]+)+\.(?:ms|bytes|minutes|hours|enable|policy|type|days)\b(?!\.\w)"
)


@cache
def messages() -> list[tuple[str, str]]:
    """Return (place, text) of every message of an error or a log call in the package."""
    return [
        (f"{path.relative_to(ROOT)}:{line}", text)
        for path in sorted((ROOT / "sparklog").rglob("*.py"))
        for line, text in _in(ast.parse(path.read_text()))
        if " " in text.strip()
    ]


def _in(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            yield node.lineno, message_of(node.exc)
        elif isinstance(node, ast.Call) and is_log_call(node):
            yield node.lineno, message_of(node)


def faults(text: str) -> list[str]:
    """Return what is wrong with the form of a message."""
    found = [
        f"{match[0]!r}: {form}"
        for fragment, form in _FRAGMENTS.items()
        if (match := re.search(fragment, text))
    ]
    found += [f"unbalanced {a}{b}" for a, b in ("()", "[]", "``") if not _is_balanced(text, a, b)]
    return found


def _is_balanced(text: str, first: str, last: str) -> bool:
    text = re.sub(r"[\[(][^\[\]()]*[\])]", "", text)  # also a range of offsets [first, end)
    return text.count(first) % 2 == 0 if first == last else text.count(first) == text.count(last)


def _like_ours(place: str, text: str) -> str:
    """Return a message without its full stop if Kafka's own message ends with one."""
    is_kafkas = place.startswith(("sparklog/kafka/", "sparklog/cli/"))
    is_kafkas |= place.startswith(("sparklog/tools/dump/", "sparklog/ui/site.py"))
    return text.removesuffix(".") if is_kafkas else text


def test_messages_are_found() -> None:
    assert len(messages()) > 1200


def test_messages_have_the_form() -> None:
    wrong = [
        f"{place}: {fault}\n    {text}"
        for place, text in messages()
        for fault in faults(_like_ours(place, text))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("mode='w': want one of r, rw", "must be"),
        ("the file is missing.", "full stop"),
        (" the file is missing", "space"),
        ("run `sparklog verify", "unbalanced"),
        ("the file (LOG is missing", "unbalanced"),
    ],
)
def test_a_fault_is_found(text: str, fault: str) -> None:
    assert fault in "".join(faults(text))


def test_ranges_and_dots_are_no_faults() -> None:
    assert faults("{}: offsets [{}, {}) are damaged: restore the file, or give the range up") == []
    assert faults("{} is missing. Correct the path, such as /data/...") == []


def test_options_are_spelled_as_the_command_line_spells_them() -> None:
    known = {option for command in commands().values() for option in options(command)}
    known |= {"py-files", "bootstrap-server"}  # of spark-submit and of Kafka's tools
    wrong = [
        f"{place}: --{option}: {text}"
        for place, text in messages()
        for option in _OPTION.findall(text)
        if option not in known
    ]
    assert not wrong, "\n".join(wrong)


def test_configs_are_spelled_as_kafka_spells_them() -> None:
    known = {
        name.lower()
        for keys in (KEYS, LOG_KEYS, SERVICE_KEYS, ENDPOINT_KEYS, REMOTE_KEYS)
        for name in (*keys, *sink.OPTIONS, *source.OPTIONS)
    }
    wrong = [
        f"{place}: {key}: {text}"
        for place, text in messages()
        for key in _KEY.findall(text)
        if key not in known and not key.startswith(("spark.", "kafka."))
    ]
    assert not wrong, "\n".join(wrong)
