"""`sparklog verify`: is everything in a log as it should be?"""

import click

from sparklog.cli.command import Command
from sparklog.cli.exit_codes import EXIT_FAILED, EXIT_OK
from sparklog.cli.findings import print_report
from sparklog.cli.open_log import check_log
from sparklog.cli.output import count_bar, print_json
from sparklog.cli.storage import Reach, reach_options
from sparklog.service import verify as verify_log


@click.command(cls=Command)
@click.argument("path")
@click.option("--repair", is_flag=True, help="Rebuild what the log can tell; set aside the rest.")
@click.option("--dry-run", is_flag=True, help="With --repair: only show what it would do.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of a table.")
@click.option(
    "--threads", default=4, show_default=True, type=click.IntRange(1, 256),
    help="Partitions that are read at once; extents of a log in a store.",
)  # fmt: skip
@reach_options
def verify(
    path: str, repair: bool, dry_run: bool, as_json: bool, threads: int, reach: Reach
) -> int:
    """Check every invariant of the log at PATH, or URL; a damaged record is never removed.

    Works on a log that is open, closed, left by a crash, or a broker's, and changes nothing
    without --repair. A repair makes indexes, snapshots, leader epochs, watermarks and checkpoints
    anew and moves what does not belong there to files sparklog-quarantine-* of the log dir. Of a
    log in a store, the service's rounds mend what can be mended.
    """
    check_log(path, reach, archives=False)
    with count_bar("verifying", shown=not as_json) as progress:
        report = verify_log(
            path, repair and not dry_run, storage_options=reach.storage, options=reach.options,
            threads=threads, progress=progress,
        )  # fmt: skip
    if as_json:
        print_json(report.to_dict())
    else:
        print_report(report)
    return EXIT_OK if report.ok else EXIT_FAILED
