"""`sparklog ui`: shows a log in a browser, or exports one HTML page."""

import json

import click

from sparklog.cli.command import Command, stop_signal
from sparklog.cli.exit_codes import EXIT_FAILED, EXIT_OK
from sparklog.cli.open_log import check_log, to_read
from sparklog.cli.output import count_bar, print_event
from sparklog.cli.pages import NO_PAGES, PORT, Pages, PagesOptions, pages_options
from sparklog.cli.storage import StoreAccess, access_options
from sparklog.errors import StorageUnavailableError
from sparklog.pluralize import pluralize
from sparklog.quantities import size_text
from sparklog.ui.report.build import make_report
from sparklog.ui.report.model import LogReport
from sparklog.ui.report.page import render

_LOOK_S = 1.0


@click.command(cls=Command)
@click.argument("path")
@click.option(
    "--listen", "address", metavar="[HOST:]PORT",
    help="Serve the pages at this address. The default host is 127.0.0.1, the default port is "
    f"{PORT}. Port 0 selects a free port, which is printed.",
)  # fmt: skip
@click.option(
    "--export", metavar="FILE",
    help="Write a report as one HTML page to this file and exit, instead of serving pages. \"-\" "
    "is standard output. Excludes --listen and the --ui options.",
)  # fmt: skip
@pages_options
@access_options
@click.option(
    "--json", "as_json", is_flag=True,
    help="Print events as JSON, one object per line. With --export, write one JSON document "
    "instead of a page.",
)  # fmt: skip
def ui(
    path: str,
    address: str | None,
    export: str | None,
    pages: PagesOptions,
    access: StoreAccess,
    as_json: bool,
) -> int:
    """Serve web pages that show a log, its topics and its records, until Ctrl-C or SIGTERM.

    Open the URL that the command prints in a browser. The command makes no changes and takes no
    locks. `sparklog serve PATH --ui PORT` serves the same pages and also does the log's background
    work.

    With --export the command writes a report as one self-contained HTML page instead: segments by
    offset and time, growth, the segments that retention will delete, compaction, commits, readers
    and damage. The exit code is then 1 if a part of the log is damaged.
    """
    if export is not None:
        if address is not None or pages != NO_PAGES:
            raise click.UsageError("--export serves no pages: leave out --listen and --ui-...")
        return _export(path, export, access, as_json=as_json)
    shown = Pages(
        path, address or PORT, pages, access.storage, access.options, option="--listen"
    )
    with to_read(path, access, offline=True):
        pass  # reports a mistyped path at once, not on the first page
    with stop_signal() as stop, shown.served() as url:
        print_event("serving", path, as_json=as_json, ui=url)
        while not stop.wait(_LOOK_S):
            pass
    print_event("stopped", path, as_json=as_json)
    return EXIT_OK


def _export(path: str, target: str, access: StoreAccess, *, as_json: bool) -> int:
    check_log(path, offline=True)
    with count_bar("looking", shown=not as_json) as progress:
        found = make_report(
            path, storage_options=access.storage, options=access.options, progress=progress
        )
    raw = f"{json.dumps(found.to_dict(), indent=2)}\n" if as_json else render(found)
    _write(found, raw.encode(), target)
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
            f"{target} can't be written ({error.strerror}): pass another file to --export"
        ) from error
    click.echo(
        f"{target}: {size_text(len(raw))}, {pluralize(len(found.topics), 'topic')}, "
        f"{pluralize(sum(len(p.segments) for p in found.partitions), 'segment')}, looked at in "
        f"{found.took_ms / 1000:.1f} s",
        err=True,
    )
    for notice in found.notices:
        click.echo(f"{notice.severity}: {notice.where}: {notice.what}", err=True)
