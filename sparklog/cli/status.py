"""`sparklog status`: reports whether a log is healthy."""

import logging
from typing import Final

import click

from sparklog.cli.command import Command, stop_signal
from sparklog.cli.exit_codes import EXIT_FAILED, EXIT_OK
from sparklog.cli.findings import print_health, print_nagios
from sparklog.cli.output import print_json
from sparklog.cli.storage import StoreAccess, access_options
from sparklog.errors import SparklogError
from sparklog.service.health import Health, Level
from sparklog.service.health.examiner import Examiner

_FAILS: Final = {"amber": Level.AMBER.rank, "red": Level.RED.rank, "never": Level.RED.rank + 1}
_NAGIOS_UNKNOWN: Final = 3


@click.command(cls=Command)
@click.argument("path")
@click.option(
    "--fail-on", type=click.Choice(["amber", "red", "never"]), default="red", show_default=True,
    help="Exit with code 1 at this level or worse. `never` always exits with code 0.",
)  # fmt: skip
@click.option(
    "--json", "as_json", is_flag=True,
    help="Print one JSON document. Excludes --nagios and --watch.",
)  # fmt: skip
@click.option(
    "--nagios", is_flag=True,
    help="Print one line, and use the exit codes of Nagios plugins: 0 green, 1 amber, 2 red, 3 "
    "unknown. --fail-on has no effect.",
)  # fmt: skip
@click.option(
    "--watch", "every_s", metavar="SECONDS", type=click.FloatRange(0.2),
    help="Repeat the checks every this many seconds, until Ctrl-C.",
)  # fmt: skip
@access_options
def status(
    path: str, fail_on: str, as_json: bool, nagios: bool, every_s: float | None, access: StoreAccess
) -> int:
    """Report whether a log is healthy (green), needs attention (amber) or fails (red), and why.

    Each problem is shown with the command that helps. The checks cover writes, offline partitions,
    the lag of readers, of copies to remote storage and of the log cleaner, the time until the disk
    is full, the service, and the last commit of each writer. The command reads no records, takes no
    locks and makes no changes. The exit code is 1 if the log is red; see --fail-on.
    """
    if as_json + nagios + (every_s is not None) > 1:
        raise click.UsageError("--json, --nagios and --watch exclude each other")
    if not click.get_current_context().find_root().params.get("verbose"):
        logging.getLogger("sparklog").setLevel(logging.ERROR)  # the output contains these messages
    try:
        examiner = Examiner(path, storage_options=access.storage, options=access.options)
        found = examiner.examine()
    except (SparklogError, OSError) as error:
        if not nagios:
            raise
        # An error that is raised ends with exit code 1, which Nagios takes for WARNING.
        click.echo(f"SPARKLOG UNKNOWN - {error}")
        return _NAGIOS_UNKNOWN
    if nagios:
        print_nagios(found)
        return found.level.rank
    if as_json:
        print_json(found.to_dict())
    elif every_s is not None:
        found = _watched(examiner, found, every_s)
    else:
        print_health(found)
    return EXIT_FAILED if found.level.rank >= _FAILS[fail_on] else EXIT_OK


def _watched(examiner: Examiner, found: Health, every_s: float) -> Health:
    """Print the health periodically; return the last result."""
    with stop_signal() as stop:
        while True:
            click.clear()
            print_health(found)
            if stop.wait(every_s):
                return found
            found = examiner.examine()
