"""The pages and their blocks."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from markdown_it import MarkdownIt
from sybil import Document, Region
from sybil.parsers.markdown import SkipParser
from sybil.parsers.markdown.lexers import DirectiveInHTMLCommentLexer, RawFencedCodeBlockLexer

from tests.paths import ROOT

_TOP = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
PAGES: Final = sorted(
    [*(ROOT / name for name in _TOP), *ROOT.glob("docs/*.md"), *ROOT.glob("sparklog/**/*.md")]
)
RUN: Final = frozenset({"python", "console", "sh", "output"})
# Drawings, layouts of bytes and the usage of commands: fences that say nothing of their language.
DRAWN: Final = frozenset({"docs/architecture.md", "docs/cli.md", "sparklog/format/README.md"})
_FENCE = RawFencedCodeBlockLexer(
    re.compile(r"(?P<language>[\w-]*)[ \t]*(?P<info>[^\n]*)$\n", re.MULTILINE)
)
_HIDDEN = DirectiveInHTMLCommentLexer("invisible-code-block", "python")
_EXIT = DirectiveInHTMLCommentLexer("ends-with", r"\d+")
_TITLE = re.compile(r'title="([^"]+)"')


@dataclass(frozen=True)
class Block:
    """A piece of a page: what is to be run, shown or written."""

    kind: str  # python, console, sh, output, file; exit: of the next block's last command
    text: str
    at: int  # of the text in the page, in characters
    line: int  # of the text, from 1
    hidden: bool = False
    name: str = ""  # of a file


def name_of(page: Path) -> str:
    """The page as a test names it."""
    return str(page.relative_to(ROOT))


def parsed(page: Path) -> Document:
    """The page with its blocks in the order in which they stand."""
    return Document.parse(str(page), _blocks, SkipParser())


def _blocks(document: Document) -> Iterable[Region]:
    for region in _FENCE(document):
        source, title = region.lexemes["source"], _TITLE.search(region.lexemes["info"] or "")
        kind = "file" if title else region.lexemes["language"] or "drawing"
        yield _region(document, region, kind, source, title[1] if title else "")
    for region in _HIDDEN(document):
        yield _region(document, region, "python", region.lexemes["source"], hidden=True)
    for region in _EXIT(document):
        yield _region(document, region, "exit", region.lexemes["arguments"])


def _region(
    document: Document, region: Region, kind: str, text: str, name: str = "", hidden: bool = False
) -> Region:
    at = region.start + getattr(text, "offset", 0)
    line = document.text.count("\n", 0, at) + 1
    region.parsed = Block(kind, str(text), at, line, hidden, name)
    return region


def blocks_of(page: Path) -> Iterator[Block]:
    """All blocks of a page, those that are left out, too."""
    return (each.parsed for each in parsed(page) if isinstance(each.parsed, Block))


def wants_spark(page: Path) -> bool:
    """Whether a Python block of the page names `spark`."""
    codes = (block.text for block in blocks_of(page) if block.kind == "python")
    return any(
        isinstance(node, ast.Name) and node.id == "spark"
        for code in codes
        for node in ast.walk(ast.parse(code))
    )


def wants_s3(page: Path) -> bool:
    """Whether a block that runs names a bucket."""
    return any("s3://bucket" in block.text for block in blocks_of(page) if block.kind in RUN)


_DEEP = ("kafka.md", "metrics.md", "monitoring.md", "testing.md", "ui.md")
"""Pages that start servers, Kafka's clients, or pytest in a process of its own."""


def is_deep(page: Path) -> bool:
    """Whether it runs from depth ci on: S3 or Kafka's clients, servers, Spark.

    The README's Spark is what each page with Spark is alike in.
    """
    spark = wants_spark(page) and page.name != "README.md"
    return spark or wants_s3(page) or page.name in _DEEP


def runs(page: Path) -> bool:
    """Whether there is anything to run."""
    return any(block.kind in RUN for block in blocks_of(page))


def left_out(page: Path) -> list[str]:
    """Blocks that a page says can't run here, as `page:line: why`."""
    skips = re.finditer(r"<!-- skip: (?:next|start) \"([^\"]+)\" -->", page.read_text())
    text = page.read_text()
    return [f"{name_of(page)}:{text.count(chr(10), 0, m.start()) + 1}: {m[1]}" for m in skips]


def faults(page: Path) -> list[str]:
    """Blocks that nothing runs and nothing excuses, as `page:line: what`."""
    name, text = name_of(page), page.read_text()
    found = [
        f"{name}:{block.line}: {block.kind}, which nothing runs; what is a file has a title"
        for block in blocks_of(page)
        if block.kind not in RUN | {"file", "exit"}
        and not (block.kind == "drawing" and name in DRAWN)
    ]
    indented = (t for t in MarkdownIt("commonmark").parse(text) if t.type == "code_block")
    found += [
        f"{name}:{token.map[0] + 1}: code by indentation, which nothing runs: fence it"
        for token in indented
        if token.map is not None
    ]
    return found
