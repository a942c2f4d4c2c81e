"""`sparklog metrics`: prints a log's metrics once, read from the log's files or objects."""

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from sparklog.cli.command import Command
from sparklog.cli.exit_codes import EXIT_FAILED, EXIT_OK
from sparklog.cli.findings import BATCH_COLUMNS, batch_rows
from sparklog.cli.open_log import check_log
from sparklog.cli.output import console, print_json
from sparklog.cli.storage import StoreAccess, access_options
from sparklog.quantities import size_text
from sparklog.service.health import Examiner, health_samples
from sparklog.service.metrics import LogMetrics, alert_rules, collect, dashboard
from sparklog.service.metrics.endpoint import text_of
from sparklog.service.metrics.samples import samples, to_json


@click.command(cls=Command)
@click.argument("path", required=False)
@click.option("--table", "as_table", is_flag=True, help="Print tables instead. Excludes --json.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead.")
@click.option(
    "--alert-rules", "rules", is_flag=True,
    help="Print a file of alert rules for Prometheus instead. Omit PATH and all other options.",
)  # fmt: skip
@click.option(
    "--dashboard", "board", is_flag=True,
    help="Print a dashboard for Grafana 10 or later instead, as JSON. Omit PATH and all other "
    "options.",
)  # fmt: skip
@access_options
def metrics(
    path: str | None, as_table: bool, as_json: bool, rules: bool, board: bool, access: StoreAccess
) -> int:
    """Print the metrics of a log once, in the text format of Prometheus.

    The metrics are read from the log's files or objects: sizes, offsets, the lag of readers,
    overdue work, and commits (of a log in a bucket those of the last 1024 ledger entries). No
    service needs to run. For continuous scraping use `sparklog serve --metrics-port`, which also
    exports counters of its process. The exit code is 1 if a part of the log could not be read.

    To set up alerts, redirect the output of --alert-rules to a file and list the file under
    rule_files in prometheus.yml. The rules expect a scrape job named sparklog, with the address of
    `sparklog serve --metrics-port`. Import the output of --dashboard into Grafana (Dashboards, New,
    Import).
    """
    if rules or board:
        if (rules and board) or path is not None or as_table or as_json:
            raise click.UsageError(
                "--alert-rules and --dashboard each print a file: leave out PATH and the other "
                "options"
            )
        click.echo(alert_rules() if rules else dashboard(), nl=False)
        return EXIT_OK
    if path is None:
        raise click.MissingParameter(param_hint="'PATH'", param_type="argument")
    if as_table and as_json:
        raise click.UsageError("--table and --json exclude each other")
    check_log(path, access, archives=False)
    found = collect(path, storage_options=access.storage, options=access.options)
    examiner = Examiner(path, storage_options=access.storage, options=access.options)
    health = examiner.examine(found=found)
    all_samples = [*samples(found, process=False), *health_samples(health)]
    if as_json:
        given = to_json(all_samples)
        print_json({**found.to_dict(), "samples": given})
    elif as_table:
        _print(found)
        console().print(Text(f"{health.level}: {health.verdict}"))
    else:
        click.echo(text_of(all_samples), nl=False)
    if not as_table and not as_json:
        for error in found.errors:
            click.echo(f"sparklog: {error}", err=True)
    return EXIT_FAILED if found.errors else EXIT_OK


def _print(found: LogMetrics) -> None:
    out = console()
    for directory in found.directories:
        free = directory.free_bytes
        text = "offline" if free is None else f"{size_text(free)} free"
        if "://" in directory.directory:  # the free space of a store is unknown
            text = "offline" if directory.error else "available"
        if directory.failing:
            text += "; the last write there failed"
        out.print(f"{directory.directory}: {text}", markup=False)
    rows = [
        [
            p.topic, str(p.partition), size_text(p.size_bytes), str(p.segments),
            str(p.log_start_offset), str(p.log_end_offset), size_text(p.due_bytes),
            *([] if found.term is None else [str(p.pieces)]),
        ]
        for p in found.partitions
    ]  # fmt: skip
    names = ["topic", "partition", "size", "segments", "log start", "log end", "overdue"]
    _table([*names, "not merged"] if found.term is not None else names, rows)
    _table([*BATCH_COLUMNS], batch_rows(found.batches))
    _table(
        ["topic in pieces", "bytes", "oldest"],
        [[m.topic, size_text(m.size_bytes), f"{m.age_ms / 1000:.0f} s"]
         for m in found.merges if m.size_bytes],
    )  # fmt: skip
    _table(
        ["reader", "kind", "topic", "partition", "offset", "lag"],
        [
            [
                r.group, r.kind, r.topic, str(r.partition), str(r.offset),
                "-" if r.lag is None else str(r.lag),
            ]
            for r in found.readers
        ],
    )  # fmt: skip
    _table(
        ["tiered topic", "remote", "waits for copy", "segments", "lag", "waits for deletion"],
        [
            [
                t.topic, size_text(t.remote_bytes), size_text(t.copy_lag_bytes),
                str(t.copy_lag_segments), f"{t.copy_lag_ms / 1000:.0f} s",
                size_text(t.delete_lag_bytes),
            ]
            for t in found.tiers
        ],
    )  # fmt: skip
    _table(
        ["deleted topic or segments of", "kind", "storage", "waits for deletion"],
        [[a.topic, a.kind, a.storage, size_text(a.size_bytes)] for a in found.awaiting_deletion],
    )
    if found.holder:
        where = f"process {found.holder.get('pid', '?')} on host {found.holder.get('host', '?')}"
        out.print(f"service: term {found.term}, {where}", markup=False)
    for (topic, partition), why in sorted(found.offline.items()):
        out.print(Text(f"{topic}-{partition} is offline: {why}", style="bold red"))
    for error in found.errors:
        out.print(Text(f"not read: {error}", style="bold red"))


def _table(names: list[str], rows: list[list[str]]) -> None:
    if not rows:
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for at, name in enumerate(names):
        table.add_column(name, justify="right" if rows[0][at][:1].isdigit() else "left")
    for row in rows:
        table.add_row(*map(Text, row))
    console().print(table)
