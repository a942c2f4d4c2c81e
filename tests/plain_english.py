"""Measures how plain the English of docstrings, messages and pages is.

    python -m tests.plain_english                  # a line per room, and the pages
    python -m tests.plain_english FILE...          # these files: fails, and shows each phrase

A phrase of the tables below is not wrong by itself. Texts that contain many of them are hard to
read for people who do not know the project, because the noun is missing that a pronoun stands for,
or because the verb is one that technical English does not use. So rates are limited, per 1,000
words, and a single phrase in a file is never an error.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.paths import ROOT

DOCSTRINGS_MAX: Final = 5.0
MESSAGES_MAX: Final = 8.0
PAGES_MAX: Final = 6.0
"""Phrases per 1,000 words, of the whole package."""
VAGUE_MAX: Final = 0.10
"""Share of docstrings whose first sentence contains a pronoun."""
FILE_PHRASES_MAX: Final = 2
FILE_RATE_MAX: Final = 12.0
"""A changed file fails with more phrases than this, at a higher rate than this."""

PLAINER: Final = {
    r"anew": "again",
    r"who(?:so)?ever|whichever|no ?body|some ?body": "the actor: the reader, a process, the caller",
    r"here(?:in|of|by|upon)|there(?:in|of|upon)|where(?:by|in|upon)|hither(?:to)?|thence|hence": (
        "a second sentence"
    ),
    r"meanwhile|likewise": "a sentence with a subject and a time",
    r"lies|lie in|lies in": "is stored in, is in",
    r"(?:is|are|was|were) gone": "was deleted, is missing",
    r"lets? go of|let go": "releases",
    r"gives? back|given back|takes? back": "restores, returns",
    r"goes on|go on|went on": "continues",
    r"comes? back|came back": "returns, is available again",
    r"asks? for what|what (?:it|they|is|was|are|has|there)|of what|from what|by what|to what": (
        "the noun: the records, the path"
    ),
    r"of that|of those|those of|that of|of whom|whose": "the noun",
    r"the one|this one|that one|which one|another one|ones": "the noun",
    r"as it is|as it was|as they are|for itself|by itself": "unchanged",
    r"for want of|in want of|but for|save for|none if|none where": "without, except",
    r"which see|see to it": "see NAME",
    r"tells? (?:of|that|whether|how)|told|says? (?:so|that)": "reports, returns, contains",
    r"whole of|as a whole": "all of, the complete",
}
"""{phrase: what to write instead}; regular expressions of whole words."""
OPENINGS: Final = re.compile(
    r"(?:^|(?<=[.:;!?])\s+)(?:what|who|whose|whoever|those|that|one|of|where|which)\s",
    re.IGNORECASE,
)
"""First words of sentences without a subject that a reader knows."""
PRONOUNS: Final = re.compile(r"\b(?:it|its|what|who|whose|those|them|one)\b", re.IGNORECASE)
_PHRASES: Final = {
    re.compile(rf"\b(?:{phrase})\b", re.IGNORECASE): advice for phrase, advice in PLAINER.items()
}
_CODE: Final = re.compile(r"```.*?```|<!--.*?-->|``?[^`\n]*``?|https?://\S+|^\|.*?$|^ *>>>.*?$",
                          re.DOTALL | re.MULTILINE)  # fmt: skip
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z']*")
_LOGS: Final = frozenset({"debug", "info", "warning", "error", "exception", "critical"})


@dataclass
class Texts:
    """Texts of a kind, with the phrases found in them."""

    count: int = 0
    words: int = 0
    vague: int = 0
    phrases: list[str] = field(default_factory=list)

    def add(self, place: str, text: str) -> None:
        """Count the words and phrases of a text."""
        prose = _CODE.sub("X", text)
        self.count += 1
        self.words += len(_WORD.findall(prose))
        self.vague += bool(PRONOUNS.search(first_sentence(prose)))
        for phrase, advice in _PHRASES.items():
            for found in phrase.finditer(prose):
                self.phrases.append(f"{place}: {found[0]!r}: write {advice}")
        for found in OPENINGS.finditer(prose):
            words = prose[found.start() : found.start() + 50].split()
            self.phrases.append(f"{place}: begins {' '.join(words[:5])!r}: name the subject")

    @property
    def rate(self) -> float:
        """Phrases per 1,000 words."""
        return 1000 * len(self.phrases) / max(self.words, 1)

    @property
    def vague_share(self) -> float:
        """The share of texts whose first sentence contains a pronoun."""
        return self.vague / max(self.count, 1)


def first_sentence(text: str) -> str:
    """Return a docstring's first sentence."""
    return re.split(r"(?<=[.:])\s|\n\s*\n", text.strip(), maxsplit=1)[0]


def measure(paths: Iterable[Path]) -> dict[str, Texts]:
    """Return {kind: its texts} of Python and Markdown files; kinds: docstrings, messages, pages."""
    found = {"docstrings": Texts(), "messages": Texts(), "pages": Texts()}
    for path in paths:
        name = str(path.relative_to(ROOT))
        if path.suffix == ".md":
            found["pages"].add(name, path.read_text())
        elif path.suffix == ".py":
            for kind, line, text in _texts(ast.parse(path.read_text())):
                found[kind].add(f"{name}:{line}", text)
    return found


def _texts(tree: ast.Module) -> Iterator[tuple[str, int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node)
            if docstring:
                yield "docstrings", getattr(node, "lineno", 1), docstring
        elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            yield "messages", node.lineno, message_of(node.exc)
        elif isinstance(node, ast.Call) and is_log_call(node):
            yield "messages", node.lineno, message_of(node)


def is_log_call(call: ast.Call) -> bool:
    """Return whether a call writes to a logger of the module."""
    function = call.func
    return (
        isinstance(function, ast.Attribute)
        and function.attr in _LOGS
        and isinstance(function.value, ast.Name)
        and function.value.id.lower().strip("_") in ("log", "logger", "logging")
    )


def message_of(call: ast.Call) -> str:
    """Return the text of an error or a log message, with {} for each value."""
    parts = []
    for argument in call.args:
        for node in ast.walk(argument):
            if isinstance(node, ast.JoinedStr):
                parts += [v.value if isinstance(v, ast.Constant) else "{}" for v in node.values]
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                parts += _plain(node, argument)
    return "".join(parts)


def _plain(node: ast.Constant, within: ast.expr) -> list[str]:
    """Return the text of a string that is not part of an f-string; {} for a join's separator."""
    for each in ast.walk(within):
        if isinstance(each, ast.JoinedStr) and node in each.values:
            return []
        if isinstance(each, ast.Attribute) and each.value is node:
            return ["{}"]
    return [str(node.value)]


def rooms() -> dict[str, list[Path]]:
    """Return {room: files} of the package, and of the pages."""
    package = ROOT / "sparklog"
    found = {
        f"sparklog/{each.name}": sorted(each.rglob("*.py"))
        for each in sorted(package.iterdir())
        if (each / "__init__.py").exists()
    }
    found["sparklog/*.py"] = sorted(package.glob("*.py"))
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
    pages += sorted((ROOT / "docs").rglob("*.md"))
    found["pages"] = [*pages, *sorted(package.rglob("*.md"))]
    return found


def all_files() -> list[Path]:
    """Return the files of all rooms."""
    return [path for paths in rooms().values() for path in paths]


def _report() -> None:
    header = ("room", "docstrings", "vague first sentences", "messages", "pages")
    print("| " + " | ".join(header) + " |\n|--|--:|--:|--:|--:|")
    everything = rooms()
    for room, paths in [*everything.items(), ("all", all_files())]:
        found = measure(paths)
        docstrings, messages, pages = found["docstrings"], found["messages"], found["pages"]
        print(
            f"| {room} | {docstrings.rate:.1f} | {docstrings.vague_share:.1%} "
            f"| {messages.rate:.1f} | {pages.rate:.1f} |"
        )


def vague_files(paths: Iterable[Path]) -> list[str]:
    """Return the phrases of the files that contain too many."""
    faults = []
    for path in paths:
        texts = measure([path]).values()
        phrases = [phrase for each in texts for phrase in each.phrases]
        rate = 1000 * len(phrases) / max(sum(each.words for each in texts), 1)
        if len(phrases) > FILE_PHRASES_MAX and rate > FILE_RATE_MAX:
            faults += phrases
    return faults


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("files", nargs="*", type=Path)
    given = parser.parse_args().files
    if not given:
        _report()
        return 0
    faults = vague_files(path.resolve() for path in given)
    print("\n".join(faults))
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
