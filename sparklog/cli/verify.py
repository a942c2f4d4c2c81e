"""`sparklog verify`: checks a log, repairs it, or gives up missing data of offline partitions."""

import contextlib
from collections.abc import Sequence
from dataclasses import asdict

import click

from sparklog.cli.command import Command
from sparklog.cli.exit_codes import EXIT_FAILED, EXIT_OK
from sparklog.cli.findings import print_health, print_report
from sparklog.cli.open_log import check_dry_run, check_log, check_log_dirs
from sparklog.cli.output import count_bar, print_json, print_table
from sparklog.cli.storage import StoreAccess, access_options
from sparklog.errors import DataCorruptionError
from sparklog.logdir.home import open_log
from sparklog.pluralize import pluralize
from sparklog.service import Verification
from sparklog.service import verify as verify_log
from sparklog.storage.home import GivenUp


@click.command(cls=Command)
@click.argument("path")
@click.option(
    "--repair", is_flag=True,
    help="Rebuild what can be derived from the log, and set aside what does not belong to it.",
)  # fmt: skip
@click.option(
    "--give-up", is_flag=True,
    help="Bring offline partitions back online without their missing records.",
)  # fmt: skip
@click.option(
    "--dry-run", is_flag=True,
    help="With --repair or --give-up: show what would be done and change nothing.",
)  # fmt: skip
@click.option(
    "--topic", metavar="NAME", help="With --give-up: only the offline partitions of this topic.",
)  # fmt: skip
@click.option(
    "--partition", "partitions", type=int, multiple=True, metavar="N",
    help="With --give-up and --topic: only this partition. Repeatable.",
)  # fmt: skip
@click.option(
    "--batches", is_flag=True,
    help="Print records and bytes per batch and the compression ratio even for many topics.",
)  # fmt: skip
@click.option(
    "--quick", is_flag=True,
    help="Check only what takes about a second and reads no data: what `sparklog status` checks, "
    "and the names and sizes of files.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of a table.")
@click.option(
    "--threads", default=4, show_default=True, type=click.IntRange(1, 256),
    help="Read this many partitions at once, or extents of a log in a store.",
)  # fmt: skip
@access_options
def verify(
    path: str,
    repair: bool,
    give_up: bool,
    dry_run: bool,
    topic: str | None,
    partitions: Sequence[int],
    batches: bool,
    quick: bool,
    as_json: bool,
    threads: int,
    access: StoreAccess,
) -> int:
    """Check every invariant of the log at PATH, which may be a URL.

    The command works on a log that is open, closed, left by a crash, or a broker's. The command
    makes no changes without --repair or --give-up, and never removes a damaged record.

    --repair rebuilds indexes, snapshots, leader epochs, watermarks and checkpoints, and moves what
    does not belong to the log into files sparklog-quarantine-* of the log dir. The option also
    rebuilds a damaged commit ledger and reports which of its facts are lost. In a store it writes
    sparklog.home, manifests and states again, and damaged segments from the objects that they were
    merged from while these exist. Originals are copied to quarantine/. All batches are counted by
    topic and codec; their size before compression is estimated by decompressing a few of each
    segment.

    --give-up brings partitions back online that are offline because their log dir is not mounted,
    or because their directory or segments are missing. A partition is online again as soon as its
    files are back; use --give-up only if they are lost. The table shows which records are given up.
    Offsets continue behind them, and no offset is assigned twice. The remains of a directory stay
    beside it under Kafka's name for strays. Give all log dirs of the log, joined by ",".
    """
    if give_up:
        if repair or quick or batches:
            raise click.UsageError(
                "--give-up checks nothing: leave out --repair, --quick and --batches"
            )
        if partitions and topic is None:
            raise click.UsageError("--partition needs a topic: give --topic as well")
        return _give_up(path, topic, partitions, dry_run=dry_run, as_json=as_json)
    if topic is not None or partitions:
        raise click.UsageError("--topic and --partition select what to give up: give --give-up")
    if quick:
        if repair or dry_run:
            raise click.UsageError("--quick checks too little for a repair: leave one of them out")
        report = verify_log(
            path, quick=True, storage_options=access.storage, options=access.options
        )
        return _print_result(report, batches=batches, as_json=as_json)
    with contextlib.suppress(DataCorruptionError):  # the report contains a finding for it
        check_log(path, access, archives=False)
    with count_bar("verifying", shown=not as_json) as progress:
        report = verify_log(
            path, repair and not dry_run, storage_options=access.storage, options=access.options,
            threads=threads, progress=progress,
        )  # fmt: skip
    return _print_result(report, batches=batches, as_json=as_json)


def _print_result(report: Verification, *, batches: bool, as_json: bool) -> int:
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


def _give_up(
    path: str, topic: str | None, partitions: Sequence[int], *, dry_run: bool, as_json: bool
) -> int:
    check_log_dirs(path, "its partitions cannot be offline", offline=True)
    check_dry_run(path, dry_run=dry_run)
    with open_log(path, mode="rw") as log:
        lost = log.give_up(topic, partitions or None, dry_run=dry_run)
    if as_json:
        print_json([asdict(each) for each in lost])
    else:
        _print_given_up(lost, dry_run=dry_run)
    return EXIT_OK


def _print_given_up(lost: list[GivenUp], *, dry_run: bool) -> None:
    if not lost:
        click.echo("No partition is offline.")
        return
    rows = [
        [each.topic, each.partition, f"[{each.first}, {each.end})", each.directory,
         each.why.partition(": ")[2].partition(";")[0] or each.why]
        for each in lost
    ]  # fmt: skip
    print_table(["topic", "partition", "lost offsets", "directory", "why"], rows)
    offsets = pluralize(sum(each.end - each.first for each in lost), "offset")
    verb = "would be given up" if dry_run else "given up"
    click.echo(f"{pluralize(len(lost), 'partition')}, {offsets}: {verb}")
