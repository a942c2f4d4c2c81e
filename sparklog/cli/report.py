"""`sparklog report`: a log as one HTML page, or as JSON."""

import json

import click

from sparklog.cli.command import Command
from sparklog.cli.exit_codes import EXIT_FAILED, EXIT_OK
from sparklog.cli.open_log import check_log
from sparklog.cli.output import count_bar
from sparklog.cli.storage import Reach, reach_options
from sparklog.errors import StorageUnavailableError
from sparklog.pluralize import pluralize
from sparklog.quantities import size_text
from sparklog.tools.report.build import make_report
from sparklog.tools.report.model import LogReport
from sparklog.tools.report.page import render

_DEFAULT = "report.html"


@click.command(cls=Command)
@click.argument("path")
@click.option(
    "-o", "--output", metavar="FILE",
    help=f'Where it goes; "-" is stdout.  [default: {_DEFAULT}, stdout with --json]',
)  # fmt: skip
@reach_options
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of a page.")
def report(path: str, output: str | None, reach: Reach, as_json: bool) -> int:
    """Write what the log at PATH holds, and what becomes of it, into one HTML page.

    Segments by offset and time, growth, what retention takes when, compaction, commits, readers
    and what is damaged. PATH may be log dirs, a broker's too, or an archive's URL. Works while
    the log is written, and changes nothing. The page asks for nothing else: send it, keep it.
    """
    check_log(path, offline=True)
    with count_bar("looking", shown=not as_json) as progress:
        found = make_report(
            path,
            storage_options=reach.storage,
            options=reach.options,
            progress=progress,
        )
    raw = f"{json.dumps(found.to_dict(), indent=2)}\n" if as_json else render(found)
    _write(found, raw.encode(), output or ("-" if as_json else _DEFAULT))
    return EXIT_FAILED if found.damaged else EXIT_OK


def _write(found: LogReport, raw: bytes, target: str) -> None:
    if target == "-":
        click.echo(raw, nl=False)
        return
    try:
        with open(target, "wb") as file:
            file.write(raw)
    except OSError as error:
        raise StorageUnavailableError(
            f"{target} can't be written ({error.strerror}): give another file by -o"
        ) from error
    click.echo(
        f"{target}: {size_text(len(raw))}, {pluralize(len(found.topics), 'topic')}, "
        f"{pluralize(sum(len(p.segments) for p in found.partitions), 'segment')}, looked at in "
        f"{found.took_ms / 1000:.1f} s",
        err=True,
    )
    for notice in found.notices:
        click.echo(f"{notice.severity}: {notice.where}: {notice.what}", err=True)
