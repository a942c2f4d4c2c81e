"""`sparklog verify`: is everything in a log as it should be?"""

import contextlib

import click

from sparklog.cli.command import Command
from sparklog.cli.exit_codes import EXIT_FAILED, EXIT_OK
from sparklog.cli.findings import print_report
from sparklog.cli.health import print_health
from sparklog.cli.open_log import check_log
from sparklog.cli.output import count_bar, print_json
from sparklog.cli.storage import Reach, reach_options
from sparklog.errors import DataCorruptionError
from sparklog.service import Verification
from sparklog.service import verify as verify_log


@click.command(cls=Command)
@click.argument("path")
@click.option("--repair", is_flag=True, help="Rebuild what the log can tell; set aside the rest.")
@click.option("--dry-run", is_flag=True, help="With --repair: only show what it would do.")
@click.option(
    "--batches", is_flag=True,
    help="Also of many topics: records and bytes a batch, and what compression makes of them.",
)  # fmt: skip
@click.option(
    "--quick", is_flag=True,
    help="Only what can be told in about a second, without reading data: `sparklog status`, and "
    "what names and sizes of files tell.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of a table.")
@click.option(
    "--threads", default=4, show_default=True, type=click.IntRange(1, 256),
    help="Partitions that are read at once; extents of a log in a store.",
)  # fmt: skip
@reach_options
def verify(
    path: str,
    repair: bool,
    dry_run: bool,
    batches: bool,
    quick: bool,
    as_json: bool,
    threads: int,
    reach: Reach,
) -> int:
    """Check every invariant of the log at PATH, or URL; a damaged record is never removed.

    Works on a log that is open, closed, left by a crash, or a broker's, and changes nothing
    without --repair. A repair makes indexes, snapshots, leader epochs, watermarks and checkpoints
    anew and moves what does not belong there to files sparklog-quarantine-* of the log dir. It
    rebuilds a damaged commit ledger and reports which of its facts are lost. In a store it writes
    sparklog.home, manifests and states again, and damaged segments from the objects that they were
    merged from while these exist. Originals are copied to quarantine/. All batches are counted by
    topic and codec; what they were before compression is known by decompressing a few of each
    segment.
    """
    if quick:
        if repair or dry_run:
            raise click.UsageError("--quick finds too little for a repair: leave one of them out")
        report = verify_log(
            path, quick=True, storage_options=reach.storage, options=reach.options
        )
        return _told(report, batches=batches, as_json=as_json)
    with contextlib.suppress(DataCorruptionError):  # the report has a finding for it
        check_log(path, reach, archives=False)
    with count_bar("verifying", shown=not as_json) as progress:
        report = verify_log(
            path, repair and not dry_run, storage_options=reach.storage, options=reach.options,
            threads=threads, progress=progress,
        )  # fmt: skip
    return _told(report, batches=batches, as_json=as_json)


def _told(report: Verification, *, batches: bool, as_json: bool) -> int:
    if as_json:
        print_json(report.to_dict())
    else:
        if report.health is not None:
            print_health(report.health)
        if report.health is None or report.partitions or report.findings:
            print_report(report, batches=batches)
        elif report.unseen is not None:
            click.echo(f"not looked at: {report.unseen}")
    return EXIT_OK if report.ok else EXIT_FAILED
