"""What commands print: tables for people, one JSON document for scripts."""

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

import click
from rich.box import SIMPLE_HEAD
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
from rich.table import Table
from rich.text import Text

from sparklog.service import Finding, Severity, Verification
from sparklog.service.report import counted

_PIPED_COLUMNS: Final = 200  # where no terminal says how wide it is
_STYLES: Final = {
    Severity.DAMAGE: "bold red",
    Severity.DIFFERENCE: "yellow",
    Severity.LEFTOVER: "cyan",
    Severity.WARNING: "magenta",
}


def console(*, err: bool = False) -> Console:
    """A console as wide as the terminal, or wide enough for `grep`."""
    stream = sys.stderr if err else sys.stdout
    return Console(file=stream, width=None if stream.isatty() else _PIPED_COLUMNS, highlight=False)


def print_json(document: Any) -> None:
    """Print one JSON document."""
    click.echo(json.dumps(document, indent=2, ensure_ascii=False))


def print_report(report: Verification) -> None:
    """Print what a verification found, a row each, and what was or would be done."""
    out = console()
    counts = ", ".join(f"{n} {name}" for name, n in report.counts().items() if n)
    what = f"{counted(report.partitions, 'partition')}, {counted(report.segments, 'segment')}"
    out.print(
        f"{','.join(report.directories)} ({report.situation}): {what}, "
        f"{size_text(report.bytes)} in {report.took_ms / 1000:.1f} s",
        markup=False,
    )
    print_findings(report.findings, report.directories)
    for line in report.done:
        out.print(f"done: {line}", markup=False)
    if report.refused is not None:
        out.print(f"not repaired: {report.refused}", markup=False)
    verdict = "ok" if report.ok else "NOT OK"
    out.print(f"{verdict}: {counts or 'nothing found'}", style="green" if report.ok else "red")


def print_findings(findings: Sequence[Finding], directories: Sequence[str]) -> None:
    """Print findings, a row each; files by their place below the `directories`."""
    if not findings:
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("severity", "file", "where", "what", "repair"):
        # The names of segments stay whole as long as there is room.
        table.add_column(name, overflow="fold", no_wrap=name in ("severity", "file"))
    for finding in findings:
        repair = "done" if finding.repaired else finding.repair or "-"
        table.add_row(
            Text(str(finding.severity), style=_STYLES[finding.severity]),
            Text(_file(directories, finding)),
            Text(_where(finding)),
            Text(finding.what),
            Text(repair),
        )
    console().print(table)


def _file(directories: Sequence[str], finding: Finding) -> str:
    """The path below its log dir; of several dirs, the dir's name first."""
    for directory in directories:
        if finding.file.startswith(directory + os.sep):
            name = os.path.relpath(finding.file, directory)
            several = len(directories) > 1
            return os.path.join(os.path.basename(directory), name) if several else name
    return finding.file


def _where(finding: Finding) -> str:
    parts = [] if finding.position is None else [f"byte {finding.position}"]
    if finding.first is not None:
        parts.append(f"offsets [{finding.first}, {'?' if finding.end is None else finding.end})")
    return ", ".join(parts)


def size_text(count: int) -> str:
    """A number of bytes, for people."""
    size, units = float(count), ["bytes", "KiB", "MiB", "GiB", "TiB"]
    while size >= 1024 and len(units) > 1:
        size /= 1024
        units.pop(0)
    return counted(count, "byte") if units[0] == "bytes" else f"{size:.1f} {units[0]}"


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
