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
    help="Rebuild indexes and other files that can be derived from the records, and move foreign "
    "files to a quarantine. Excludes --give-up and --quick.",
)  # fmt: skip
@click.option(
    "--give-up", is_flag=True,
    help="Bring offline partitions back online without their missing records, which are lost. "
    "Excludes --repair, --quick and --batches.",
)  # fmt: skip
@click.option(
    "--dry-run", is_flag=True,
    help="Show what --repair or --give-up would do, and change nothing.",
)  # fmt: skip
@click.option(
    "--topic", metavar="NAME", help="Give up only partitions of this topic. Requires --give-up.",
)  # fmt: skip
@click.option(
    "--partition", "partitions", type=int, multiple=True, metavar="N",
    help="Give up only this partition. Requires --give-up and --topic. Repeatable.",
)  # fmt: skip
@click.option(
    "--batches", is_flag=True,
    help="Print the statistics of record batches (records, bytes, compression) in any case. By "
    "default they are printed only if the table has at most 5 rows.",
)  # fmt: skip
@click.option(
    "--quick", is_flag=True,
    help="Check only the health, as `sparklog status` does, and the names and sizes of files. "
    "Reads no records, and takes about a second.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of a table.")
@click.option(
    "--threads", default=4, show_default=True, type=click.IntRange(1, 256), metavar="N",
    help="Read this many partitions at the same time; in a bucket this many byte ranges of "
    "objects.",
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
    """Read a whole log, and report damage and differences between its files.

    The command checks the records, indexes, producer snapshots, leader epochs and the ledger, and
    counts the record batches by topic and codec. Other processes may have the log open. Without
    --repair or --give-up the command makes no changes. The exit code is 1 if damage or a difference
    was found and not repaired.

    --repair rebuilds indexes, producer snapshots, leader epochs and Kafka's checkpoint files (such
    as recovery-point-offset-checkpoint), and a damaged ledger as far as possible. Files that do not
    belong to the log are renamed to sparklog-quarantine-* in their log dir. In a bucket --repair
    rewrites manifests and states, and rebuilds a damaged segment if the objects from which it was
    merged still exist; the originals are copied to quarantine/. A damaged record is never removed.

    --give-up brings partitions back online whose log dir, directory or segments are lost. If the
    files can be found, put them back instead: the partition is then online at once. The table shows
    the lost offsets, which are never assigned again. PATH must name all log dirs of the log.
    """
    if give_up:
        if repair or quick or batches:
            raise click.UsageError(
                "--give-up does not check the log: leave out --repair, --quick and --batches"
            )
        if partitions and topic is None:
            raise click.UsageError("--partition requires a topic: add --topic")
        return _give_up(path, topic, partitions, dry_run=dry_run, as_json=as_json)
    if topic is not None or partitions:
        raise click.UsageError(
            "--topic and --partition select partitions to give up: add --give-up"
        )
    if quick:
        if repair or dry_run:
            raise click.UsageError(
                "--quick checks too little for a repair: leave out --quick, or --repair and "
                "--dry-run"
            )
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
