"""Output of verification findings, record batch statistics, and a log's health."""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from sparklog.cli.output import console
from sparklog.cli.terminal import one_row
from sparklog.log.batch_figures import BatchFigures
from sparklog.pluralize import pluralize
from sparklog.quantities import size_text
from sparklog.service.health import CHECKS, Health, Level
from sparklog.service.verification.findings import Finding, Severity, Verification

_FEW_ROWS: Final = 5
_STYLES: Final = {
    Severity.DAMAGE: "bold red",
    Severity.DIFFERENCE: "yellow",
    Severity.LEFTOVER: "cyan",
    Severity.WARNING: "magenta",
}
BATCH_COLUMNS: Final = (
    "topic", "codec", "records a batch", "p50", "p99", "bytes a batch", "p50", "p99",
    "compressed to",
)  # fmt: skip
_LEVEL_STYLES: Final = {Level.GREEN: "green", Level.AMBER: "yellow", Level.RED: "bold red"}
_WIDTH: Final = max(map(len, CHECKS))
_NAGIOS: Final = {Level.GREEN: "OK", Level.AMBER: "WARNING", Level.RED: "CRITICAL"}


def print_report(report: Verification, *, batches: bool = False) -> None:
    """Print the findings of a verification, with the repairs that were or would be made.

    Args:
        report: The result of the verification.
        batches: Print the batch statistics even if they have many rows.
    """
    out = console()
    counts = ", ".join(f"{n} {name}" for name, n in report.counts().items() if n)
    what = f"{pluralize(report.partitions, 'partition')}, {pluralize(report.segments, 'segment')}"
    out.print(
        f"{','.join(report.directories)} ({report.situation}): {what}, "
        f"{size_text(report.bytes)} in {report.took_ms / 1000:.1f} s",
        markup=False,
    )
    rows = batch_rows(report.batches)
    if rows and (batches or len(rows) <= _FEW_ROWS):
        _print_batches(rows)
    print_findings(report.findings, report.directories)
    for line in report.done:
        out.print(f"done: {line}", markup=False)
    if report.refused is not None:
        out.print(f"not repaired: {report.refused}", markup=False)
    if report.unseen is not None:
        out.print(f"not looked at: {report.unseen}", markup=False)
    verdict = "ok" if report.ok else "NOT OK"
    if not counts:
        counts = "nothing found" if report.ok else "red, as told above; nothing else found"
    out.print(f"{verdict}: {counts}", style="green" if report.ok else "red")


def _print_batches(rows: list[list[str]]) -> None:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in BATCH_COLUMNS:
        table.add_column(name, justify="left" if name in ("topic", "codec") else "right")
    for row in rows:
        table.add_row(*map(Text, row))
    console().print(table)


def print_findings(findings: Sequence[Finding], directories: Sequence[str]) -> None:
    """Print findings, a row each; file names are relative to `directories`."""
    if not findings:
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("severity", "file", "where", "what", "repair"):
        # Segment names are not wrapped while there is room.
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
    """Return the path relative to the log dir, after the log dir's name if there are several."""
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


def batch_rows(batches: Mapping[str, Iterable[BatchFigures]]) -> list[list[str]]:
    """Return the batch statistics as rows with the columns BATCH_COLUMNS."""
    return [
        [
            topic, each.codec, f"{each.records_avg:.1f}", str(each.records_p50),
            str(each.records_p99), size_text(round(each.bytes_avg)), size_text(each.bytes_p50),
            size_text(each.bytes_p99), _rate(each),
        ]
        for topic, figures in batches.items()
        for each in figures
    ]  # fmt: skip


def _rate(figures: BatchFigures) -> str:
    if figures.codec == "none" or figures.compression_rate is None:
        return "-"
    return f"{figures.compression_rate:.0%}"


def print_health(found: Health) -> None:
    """Print the verdict, a line per check, and the recommended commands."""
    out = console()
    head = (f"{found.level}: ", _LEVEL_STYLES[found.level])
    out.print(Text.assemble(head, one_row(found.verdict)), soft_wrap=True)
    for check in found.checks:
        level = (f"{check.level:<5} ", _LEVEL_STYLES[check.level])
        out.print(Text.assemble(f"  {check.name:<{_WIDTH}} ", level, one_row(check.what)),
                  soft_wrap=True)  # fmt: skip
        if check.command is not None:
            out.print(Text(f"{'':{_WIDTH + 9}}$ {one_row(check.command)}"), soft_wrap=True)


def print_nagios(found: Health) -> None:
    """Print a line in the format of Nagios plugins: a state, a text, and a value per check.

    Source: Nagios Plugins Development Guidelines, "Plugin Output", "Plugin Return Codes".
    """
    words = one_row(found.verdict).replace("|", "/")
    figures = " ".join(f"{check.name}={check.level.rank};0;1;0;2" for check in found.checks)
    click.echo(f"SPARKLOG {_NAGIOS[found.level]} - {words} | {figures}")
