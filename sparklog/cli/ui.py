"""`sparklog ui`: a log in a browser, for reading."""

import click

from sparklog.cli.command import Command
from sparklog.cli.exit_codes import EXIT_OK
from sparklog.cli.open_log import to_read
from sparklog.cli.output import tell_event
from sparklog.cli.pages import PORT, Pages, PagesOptions, pages_options
from sparklog.cli.stopping import stop_signal
from sparklog.cli.storage import Reach, reach_options

_LOOK_S = 1.0


@click.command(cls=Command)
@click.argument("path")
@click.option(
    "--listen", "address", metavar="[HOST:]PORT", default=PORT, show_default=True,
    help="Where to listen; on 127.0.0.1 if no host is given, port 0 is a free one.",
)  # fmt: skip
@pages_options
@reach_options
@click.option("--json", "as_json", is_flag=True, help="JSON instead of text.")
def ui(path: str, address: str, pages: PagesOptions, reach: Reach, as_json: bool) -> int:
    """Show the log at PATH in a browser: its report, topics and records; until SIGTERM or SIGINT.

    PATH may be log dirs, a broker's too, a log in a store, or an archive's URL. Nothing is
    changed or locked; to keep the log in shape as well: `sparklog serve PATH --ui`.
    """
    shown = Pages(path, address, pages, reach.storage, reach.options)
    with to_read(path, reach, offline=True):
        pass  # a mistyped path is told at once, not by the first page
    with stop_signal() as stop, shown.served() as url:
        tell_event("serving", path, as_json=as_json, ui=url)
        while not stop.wait(_LOOK_S):
            pass
    tell_event("stopped", path, as_json=as_json)
    return EXIT_OK
