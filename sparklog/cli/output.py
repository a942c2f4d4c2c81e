"""What commands print: tables for people, one JSON document for scripts."""

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Final

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TransferSpeedColumn,
)

from sparklog.pluralize import pluralize

_PIPED_COLUMNS: Final = 200  # where no terminal says how wide it is


def console(*, err: bool = False) -> Console:
    """A console as wide as the terminal, or wide enough for `grep`."""
    stream = sys.stderr if err else sys.stdout
    return Console(file=stream, width=None if stream.isatty() else _PIPED_COLUMNS, highlight=False)


def print_json(document: Any) -> None:
    """Print one JSON document."""
    click.echo(json.dumps(document, indent=2, ensure_ascii=False))


def size_text(count: int) -> str:
    """A number of bytes, for people."""
    size, units = float(count), ["bytes", "KiB", "MiB", "GiB", "TiB"]
    while size >= 1024 and len(units) > 1:
        size /= 1024
        units.pop(0)
    return pluralize(count, "byte") if units[0] == "bytes" else f"{size:.1f} {units[0]}"


Tell = Callable[[int, int], None]
"""Takes (done, total)."""


def bytes_bar(what: str, *, shown: bool) -> AbstractContextManager[Tell | None]:
    """A bar of bytes on stderr where a person looks at it."""
    return _bar(what, DownloadColumn(), TransferSpeedColumn(), shown=shown)


def count_bar(what: str, *, shown: bool) -> AbstractContextManager[Tell | None]:
    """A bar of (done, total) things on stderr where a person looks at it."""
    return _bar(what, MofNCompleteColumn(), TimeElapsedColumn(), shown=shown)


@contextlib.contextmanager
def _bar(what: str, *columns: ProgressColumn, shown: bool) -> Iterator[Tell | None]:
    err = console(err=True)
    if not shown or not err.is_terminal:
        yield None
        return
    with Progress(TextColumn(what), BarColumn(), *columns, console=err, transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
