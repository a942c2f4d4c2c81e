"""`sparklog status`: is the log healthy?"""

import logging
from typing import Final

import click

from sparklog.cli.command import Command
from sparklog.cli.exit_codes import EXIT_FAILED, EXIT_OK
from sparklog.cli.health import print_health, print_nagios
from sparklog.cli.output import print_json
from sparklog.cli.stopping import stop_signal
from sparklog.cli.storage import Reach, reach_options
from sparklog.errors import SparklogError
from sparklog.service.health import Health, Level
from sparklog.service.health.examiner import Examiner

_FAILS: Final = {"amber": Level.AMBER.rank, "red": Level.RED.rank, "never": Level.RED.rank + 1}
_NAGIOS_UNKNOWN: Final = 3


@click.command(cls=Command)
@click.argument("path")
@click.option(
    "--fail-on", type=click.Choice(["amber", "red", "never"]), default="red", show_default=True,
    help="From which level on the exit code is 1.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@click.option(
    "--nagios", is_flag=True,
    help="One line, and exit codes, as monitoring plugins have them: 0 green, 1 amber, 2 red, "
    "3 nobody can tell.",
)  # fmt: skip
@click.option(
    "--watch", "every_s", metavar="SECONDS", type=click.FloatRange(0.2),
    help="Look again every so many seconds, until Ctrl-C.",
)  # fmt: skip
@reach_options
def status(
    path: str, fail_on: str, as_json: bool, nagios: bool, every_s: float | None, reach: Reach
) -> int:
    """Say whether the log at PATH is healthy: green, amber or red, why, and which command helps.

    Can it be written, are partitions offline, do readers, copies and the cleaner keep up, how long
    does the disk last, who leads the background work, when did who commit last. PATH: log dirs,
    a broker's too, or the URL of a log or an archive. Reads no records, takes no lock, changes
    nothing. Exit code 1 if it is red: see --fail-on.
    """
    if as_json + nagios + (every_s is not None) > 1:
        raise click.UsageError("--json, --nagios and --watch: want one of them")
    if not click.get_current_context().find_root().params.get("verbose"):
        logging.getLogger("sparklog").setLevel(logging.ERROR)  # the checks tell it all
    try:
        examiner = Examiner(path, storage_options=reach.storage, options=reach.options)
        found = examiner.examine()
    except (SparklogError, OSError) as error:
        if not nagios:
            raise
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
    """Show it again and again; return the last one."""
    with stop_signal() as stop:
        while True:
            click.clear()
            print_health(found)
            if stop.wait(every_s):
                return found
            found = examiner.examine()
