"""`sparklog checkpoint`: inspects, verifies, forks, resets and converts checkpoints."""

import json
from collections.abc import Sequence
from functools import partial
from typing import Final

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from sparklog.checkpoint import CheckpointReport, Converted, History
from sparklog.checkpoint import export as export_checkpoint
from sparklog.checkpoint import fork as fork_checkpoint
from sparklog.checkpoint import history as read_history
from sparklog.checkpoint import import_ as import_checkpoint
from sparklog.checkpoint import reset as reset_checkpoint
from sparklog.checkpoint import verify as verify_checkpoint
from sparklog.checkpoint.rollback_request import Target
from sparklog.cli.archive import (
    archive,
    check_checkpoint,
    output_option,
    points,
    restore,
    sink_option,
)
from sparklog.cli.command import Group
from sparklog.cli.exit_codes import EXIT_FAILED, EXIT_OK
from sparklog.cli.findings import print_findings
from sparklog.cli.output import console, print_json
from sparklog.cli.parsing import as_text, parse_when
from sparklog.cli.state import bootstrap, diff, erase, rebuild, rewrite
from sparklog.cli.storage import parse_storage_options, storage_option
from sparklog.pluralize import pluralize
from sparklog.quantities import size_text

_DIGITS_MAX: Final = 100  # Python parses numbers of this length whatever its limits
_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
_to = click.option(
    "--to", "wanted", required=True, metavar="BATCH|TIME|OFFSETS",
    help="Select the batch after which the query continues. BATCH is its number. TIME, in ISO form "
    "(2013-07-03T14:00Z, UTC unless it has a zone), selects the last batch planned by then. "
    'OFFSETS, as JSON ({"topic": {"0": 123}}), selects the last batch that reads beyond none of '
    "these offsets.",
)  # fmt: skip
_source = click.option(
    "--source", "sources", multiple=True, metavar="NAME=PATH",
    help="Check that the records which the query will read again still exist in this log. NAME is "
    "the name of the query's source, or the source's number from 0: 0=/data/in. Repeatable.",
)  # fmt: skip
_writer = click.option(
    "--writer", callback=as_text, metavar="NAME",
    help="Name the query's writer in the log of --log. Required only if the sink writes under "
    "another name (its option writerId). The default is the query's id, which selects all sinks "
    "of the query.",
)


@click.group(cls=Group)
def checkpoint() -> None:
    """Inspect, verify, reset, fork, back up and convert the checkpoints of streaming queries.

    Most commands accept Spark's own checkpoints (directories of files) and log-backed checkpoints,
    which sparklog stores as records.
    """


@checkpoint.command()
@click.argument("path")
@storage_option
@_json
def history(path: str, storage_options: str, as_json: bool) -> int:
    """List the batches of a checkpoint with times, rows, offsets, and whether a reset can use them.

    The query may be running. PATH is a directory, or the URL of a checkpoint in a bucket.
    """
    check_checkpoint(path)
    found = read_history(path, storage_options=parse_storage_options(storage_options))
    if as_json:
        print_json(found.to_dict())
    else:
        _print_history(found)
    return EXIT_OK


def _print_history(found: History) -> None:
    out = console()
    out.print(f"{found.path} ({found.kind}), query {found.query}", markup=False)
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("batch", "planned", "committed", "rows", "offsets", "state", "can go back"):
        table.add_column(name, justify="right" if name in ("batch", "rows", "state") else "left")
    for row in found.batches:
        known = [rows for rows in row.rows.values() if rows is not None]
        fields = row.to_dict()
        table.add_row(
            str(row.batch),
            _when(fields["planned"]),
            _when(fields["committed"]),
            str(sum(known)) if len(known) == len(row.rows) else "?",
            Text(" ".join(json.dumps(value) for value in row.sources.values())),
            "-" if row.state_version is None else str(row.state_version),
            Text(f"no: {row.obstacle}" if row.obstacle else "yes"),
        )
    out.print(table)


def _when(iso: str | None) -> str:
    """Return an ISO time in UTC, without fractions of a second."""
    return "-" if iso is None else f"{iso[:19]}Z"


@checkpoint.command()
@click.argument("path")
@click.option(
    "--repair", is_flag=True,
    help="Remove damaged records from a log-backed checkpoint. Stop the query first. A copy of "
    "the damaged segment is kept in the same directory, with the suffix .damaged. In runs, remove "
    "the files that can't be read.",
)  # fmt: skip
@storage_option
@_json
def verify(path: str, repair: bool, storage_options: str, as_json: bool) -> int:
    """Check that a checkpoint's batches have offsets, commits and state, and no file is damaged.

    Without --repair the command makes no changes, and the query may be running. The exit code is 1
    if something is missing or damaged. PATH is a directory, or the URL of a checkpoint in a bucket.
    """
    check_checkpoint(path)
    report = verify_checkpoint(
        path, repair=repair, storage_options=parse_storage_options(storage_options)
    )
    if as_json:
        print_json(report.to_dict())
    else:
        _print_report(report)
    return EXIT_OK if report.ok else EXIT_FAILED


def _print_report(report: CheckpointReport) -> None:
    out = console()
    span = f"{report.batches[0]}..{report.batches[-1]}" if report.batches else "none"
    what = f"{pluralize(report.stores, 'state store')}, {pluralize(report.files, 'file')}"
    out.print(
        f"{report.path}: batches {span}, {what}, "
        f"{size_text(report.bytes)} in {report.took_ms / 1000:.1f} s",
        markup=False,
    )
    counts = ", ".join(f"{n} {name}" for name, n in report.counts().items() if n)
    print_findings(report.findings, [report.path])
    if not report.ok or any(finding.repaired for finding in report.findings):
        out.print(report.outlook, markup=False)
    verdict = "ok" if report.ok else "NOT OK"
    out.print(f"{verdict}: {counts or 'nothing found'}", style="green" if report.ok else "red")


@checkpoint.command()
@click.argument("path")
@click.argument("new_path")
@_to
@click.option(
    "--log", metavar="PATH",
    help="Fork the log to which the query writes as well, at the same batch. Requires --new-log.",
)  # fmt: skip
@click.option(
    "--new-log", metavar="PATH", help="Create the fork of --log at this new path."
)
@click.option(
    "--output", metavar="DIRECTORY",
    help="Name the output directory of the original query, if it writes files (parquet, csv, ...). "
    "The directory is only read. Requires --new-output.",
)  # fmt: skip
@click.option(
    "--new-output",
    metavar="DIRECTORY",
    help="Link or copy the output of the batches up to --to into this new directory, to which "
    "the new query will write. Requires --output.",
)
@sink_option
@_writer
@_source
@storage_option
@_json
def fork(
    path: str,
    new_path: str,
    wanted: str,
    log: str | None,
    new_log: str | None,
    output: str | None,
    new_output: str | None,
    sink: str | None,
    writer: str | None,
    sources: Sequence[str],
    storage_options: str,
    as_json: bool,
) -> int:
    """Copy a checkpoint as of a batch, so that a second query can continue after that batch.

    Use it to try a changed query on real data. The original checkpoint is not changed, and its
    query may be running. PATH and NEW_PATH are each a directory, or the URL of a checkpoint in a
    bucket. A new checkpoint in a bucket is kept in runs.
    """
    check_checkpoint(path)
    done = fork_checkpoint(
        path,
        new_path,
        to=_target(wanted),
        log=log,
        new_log=new_log,
        output=output,
        new_output=new_output,
        sink=sink,
        announce=partial(click.echo, err=True),
        writer=writer,
        sources=_sources(sources),
        storage_options=parse_storage_options(storage_options),
    )
    if as_json:
        print_json(done.to_dict())
    else:
        click.echo(str(done))
    return EXIT_OK


@checkpoint.command()
@click.argument("path")
@_to
@click.option(
    "--log", metavar="PATH",
    help="Reset the query's writer in the log to which it writes, so that the log accepts the "
    "repeated batches. Without a reset the log rejects them, and the query fails. The records of "
    "the removed batches stay in the log, marked as abandoned: see `sparklog consume --timeline`.",
)  # fmt: skip
@output_option
@sink_option
@_writer
@_source
@click.option("--dry-run", is_flag=True, help="Show what would be removed and change nothing.")
@storage_option
@_json
def reset(
    path: str,
    wanted: str,
    log: str | None,
    output: str | None,
    sink: str | None,
    writer: str | None,
    sources: Sequence[str],
    dry_run: bool,
    storage_options: str,
    as_json: bool,
) -> int:
    """Remove the batches after a batch from a checkpoint, so that the query repeats them.

    Stop the query first. The checkpoint is changed in place; use --dry-run to see the effect. PATH
    is a directory, or the URL of a checkpoint in runs.
    """
    check_checkpoint(path)
    done = reset_checkpoint(
        path,
        to=_target(wanted),
        log=log,
        output=output,
        sink=sink,
        announce=partial(click.echo, err=True),
        writer=writer,
        sources=_sources(sources),
        storage_options=parse_storage_options(storage_options),
        dry_run=dry_run,
    )
    if as_json:
        print_json(done.to_dict())
    else:
        click.echo(str(done))
    return EXIT_OK


@checkpoint.command(name="import")
@click.argument("path")
@storage_option
@_json
def import_(path: str, storage_options: str, as_json: bool) -> int:
    """Convert a checkpoint of Spark's files into a log-backed checkpoint, in place.

    Stop the query first. Afterwards it runs only with the settings of
    `sparklog doctor --spark-conf`. If the command is interrupted, run it again to continue. PATH is
    a directory, or the URL of a checkpoint in a bucket, which is then kept in runs.
    """
    check_checkpoint(path)
    done = import_checkpoint(path, storage_options=parse_storage_options(storage_options))
    return _converted(done, "files became records", as_json=as_json)


@checkpoint.command()
@click.argument("path")
@storage_option
@_json
def export(path: str, storage_options: str, as_json: bool) -> int:
    """Convert a log-backed checkpoint back into Spark's files, in place.

    Stop the query first. Afterwards it runs with Spark's own checkpoint manager: start it without
    the settings of log-backed checkpoints (`sparklog doctor --spark-conf --no-checkpoints`). PATH
    is a directory, or the URL of a checkpoint in runs.
    """
    check_checkpoint(path)
    done = export_checkpoint(path, storage_options=parse_storage_options(storage_options))
    return _converted(done, "records became files", as_json=as_json)


def _converted(done: Converted, what: str, *, as_json: bool) -> int:
    if as_json:
        print_json(done.to_dict())
    else:
        partitions = f", {pluralize(done.partitions, 'partition')}" if done.partitions else ""
        click.echo(f"{done.path}: {done.files} {what}, {size_text(done.bytes)}{partitions}")
    return EXIT_OK


def _target(text: str) -> Target:
    if text.strip().isdecimal() and len(text) < _DIGITS_MAX:
        return int(text)
    if text.lstrip().startswith("{"):
        try:
            return {"offsets": json.loads(text)}
        except ValueError as error:
            raise click.BadParameter(
                f"{text!r} is not JSON: {error}", param_hint="'--to'"
            ) from None
    return parse_when(text, "--to", "a batch, offsets as JSON or an ISO time")


def _sources(given: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in given:
        name, equals, path = each.partition("=")
        if not equals or not name or not path:
            raise click.BadParameter(
                f"{each!r} must have the form NAME=PATH", param_hint="'--source'"
            )
        found[name] = path
    return found


for _command in (archive, restore, points, rewrite, erase, bootstrap, rebuild, diff):
    checkpoint.add_command(_command)
