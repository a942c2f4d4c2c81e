"""`sparklog compact` and `sparklog retain`: one kind of the service's work, now."""

from collections.abc import Sequence
from typing import Any

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table

from sparklog.cli.command import Command
from sparklog.cli.exit_codes import EXIT_FAILED, EXIT_OK
from sparklog.cli.open_log import check_dry_run, check_log
from sparklog.cli.output import console, print_json
from sparklog.cli.parsing import parse_properties
from sparklog.cli.storage import Reach, parse_storage_options, storage_option
from sparklog.pluralize import pluralize
from sparklog.quantities import size_text
from sparklog.service import Service
from sparklog.storage.round_report import Expired, Removed, Report

_option = click.option(
    "--option", "options", multiple=True, metavar="KEY=VALUE",
    help="An option of the service under Kafka's name; may be given several times.",
)  # fmt: skip
_dry_run = click.option("--dry-run", is_flag=True, help="Show what would be done; changes nothing.")
_as_json = click.option("--json", "as_json", is_flag=True, help="One JSON document.")


@click.command(cls=Command)
@click.argument("path")
@click.option("--topic", "topics", multiple=True, help="Only this one; again for another.")
@_option
@_dry_run
@storage_option
@_as_json
def compact(
    path: str,
    topics: Sequence[str],
    options: Sequence[str],
    dry_run: bool,
    storage_options: str,
    as_json: bool,
) -> int:
    """Clean the compacted topics of the log at PATH now, however dirty they are.

    As Kafka's cleaner: not the active segment, nothing younger than min.compaction.lag.ms. A
    service that runs on the log has the say; it is named then, and nothing is done.
    """
    check_dry_run(path, dry_run=dry_run)
    service = _service(path, options, storage_options)
    try:
        report = service.compact(topics or None, dry_run=dry_run)
    finally:
        service.close()
    if as_json:
        print_json(_compacted(report))
    else:
        _show_compacted(report)
    return _end(report, as_json=as_json)


@click.command(cls=Command)
@click.argument("path")
@_option
@_dry_run
@storage_option
@_as_json
def retain(
    path: str, options: Sequence[str], dry_run: bool, storage_options: str, as_json: bool
) -> int:
    """Delete what retention says of the log at PATH now; --dry-run: preview of what goes.

    By retention.ms, retention.bytes and the log start, as the service does it, which announces a
    topic's first deletion a round ahead; this doesn't wait. Files are unlinked after
    file.delete.delay.ms, by a service or the next writer. Of tiered topics local segments go that
    have a copy, and copies; nothing is copied.
    """
    check_dry_run(path, dry_run=dry_run)
    service = _service(path, options, storage_options)
    try:
        report = service.retain(dry_run=dry_run)
    finally:
        service.close()
    if as_json:
        print_json(report.to_dict())
    else:
        _show_retained(report)
    return _end(report, as_json=as_json)


def _service(path: str, options: Sequence[str], storage_options: str) -> Service:
    storage = parse_storage_options(storage_options)
    check_log(path, Reach(storage), archives=False)
    return Service(path, options=parse_properties(options, "--option"), storage_options=storage)


def _end(report: Report, *, as_json: bool) -> int:
    failed = [*report.errors, *([report.standing_by] if report.standing_by else [])]
    if not as_json:
        for error in report.errors:
            click.echo(f"failed: {error}", err=True)
        if report.standing_by:
            click.echo(f"{report.standing_by} does the background work; nothing was done", err=True)
    return EXIT_FAILED if failed else EXIT_OK


def _compacted(report: Report) -> dict[str, Any]:
    whole = report.to_dict()
    kept = {name: whole[name] for name in ("path", "dry_run", "standing_by", "errors", "took_ms")}
    return kept | {
        "cleaned": whole["cleaned"],
        "bytes_before": sum(one.bytes_before for one in report.cleaned),
        "bytes_after": sum(one.bytes_after for one in report.cleaned),
    }


def _show_compacted(report: Report) -> None:
    if not report.cleaned:
        if not report.errors and not report.standing_by:
            click.echo("nothing to compact: all closed segments are clean")
        return
    names = ["topic", "partition", "dirty bytes", "ratio"]
    names += [] if report.dry_run else ["bytes before", "bytes after", "records", "keys", "ms"]
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in names:
        table.add_column(name, justify="left" if name == "topic" else "right")
    for one in report.cleaned:
        row = [one.topic, str(one.partition), size_text(one.dirt.cleanable_bytes),
               f"{one.dirt.ratio:.2f}"]  # fmt: skip
        if not report.dry_run:
            row += [size_text(one.bytes_before), size_text(one.bytes_after)]
            row += [f"{one.records_kept} of {one.records_read}", str(one.keys)]
            row += [f"{one.took_ms:.0f}"]
        table.add_row(*row)
    console().print(table)
    if report.dry_run:
        click.echo("these would be compacted")


def _show_retained(report: Report) -> None:
    would = "would be " if report.dry_run else ""
    for topic, partition, base in report.rolled:
        click.echo(f"{topic}-{partition}: segment {base} {would}closed, as it is idle")
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("topic", "partition", "first", "end", "size", "what", "rule", "why"):
        table.add_column(name, justify="right" if name in ("partition", "first", "end", "size")
                         else "left", overflow="fold")  # fmt: skip
    rows: list[tuple[str, int, Expired | Removed]] = [
        (gone.topic, gone.partition, one) for gone in report.deleted for one in gone.segments
    ]
    rows += [(copy.topic, copy.partition, copy) for copy in report.removed]
    for topic, partition, one in rows:
        what = "copy" if isinstance(one, Removed) else "segment"
        table.add_row(topic, str(partition), str(one.base), str(one.end), size_text(one.bytes),
                      what, one.rule, one.why)  # fmt: skip
    if table.row_count:
        console().print(table)
    for gone in report.deleted:
        if gone.held_back_bytes:
            held = size_text(gone.held_back_bytes)
            click.echo(f"{gone.topic}-{gone.partition}: {held} wait for registered readers")
    for note in report.notes:
        click.echo(note)
    if report.remote_lag_bytes:
        size = size_text(report.remote_lag_bytes)
        click.echo(f"{size} wait for their copy and stay: `sparklog serve --once` copies them")
    segments = pluralize(sum(len(gone.segments) for gone in report.deleted), "segment")
    size = size_text(sum(gone.bytes for gone in report.deleted))
    click.echo(f"{segments} of {size} {would}deleted")
    if report.removed:
        copies = pluralize(len(report.removed), "copy", "copies")
        size = size_text(sum(copy.bytes for copy in report.removed))
        click.echo(f"{copies} of {size} {would}deleted from remote storage")
