"""`sparklog leader-election`: offline partitions go on, at the price of what is missing."""

from collections.abc import Sequence
from dataclasses import asdict

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table

from sparklog.cli.exit_codes import EXIT_OK
from sparklog.cli.kafka_tools import KafkaTool
from sparklog.cli.open_log import check_dry_run, check_log_dirs
from sparklog.cli.output import console, print_json
from sparklog.logdir.home import open_log
from sparklog.pluralize import pluralize
from sparklog.storage.home import GivenUp


def _unclean_only(context: click.Context, option: click.Parameter, given: str) -> None:
    if given.lower() == "preferred":
        why = "a partition has one replica, which is always the leader: there is nothing to elect"
        raise click.BadParameter(why, ctx=context, param=option)
    if given.lower() != "unclean":
        raise click.BadParameter(f"{given}: want unclean", ctx=context, param=option)


@click.command("leader-election", cls=KafkaTool)
@click.argument("path")
@click.option(
    "--election-type", callback=_unclean_only, expose_value=False, required=True,
    metavar="unclean", help="Records that are missing are given up, for good.",
)  # fmt: skip
@click.option("--topic", help="The topic whose offline partitions are given up.")
@click.option(
    "--partition", "partitions", type=int, multiple=True,
    help="Only this one of the topic; again for another.",
)  # fmt: skip
@click.option("--all-topic-partitions", "every", is_flag=True, help="All that are offline.")
@click.option("--dry-run", is_flag=True, help="Show what would be lost; changes nothing.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def elect(
    path: str,
    topic: str | None,
    partitions: Sequence[int],
    every: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Make offline partitions available without what is missing (kafka-leader-election).

    A partition is offline while its log dir isn't mounted, or its directory or segments are gone;
    it comes back by itself with its files. Here its owner gives the missing records up: the table
    says which. Offsets go on behind them, none is ever given twice; what is left of a directory
    stays beside it under Kafka's name for strays. Give all log dirs of the log, joined by ",".
    """
    if every == (topic is not None):
        raise click.UsageError("give either --topic or --all-topic-partitions")
    if partitions and topic is None:
        raise click.UsageError("--partition wants --topic")
    check_log_dirs(path, "nothing of it can be offline", offline=True)
    check_dry_run(path, dry_run=dry_run)
    with open_log(path, mode="rw") as log:
        found = log.give_up(topic, partitions or None, dry_run=dry_run)
    if as_json:
        print_json([asdict(one) for one in found])
    else:
        _show(found, dry_run=dry_run)
    return EXIT_OK


def _show(found: list[GivenUp], *, dry_run: bool) -> None:
    out = console()
    if not found:
        out.print("No partition is offline.")
        return
    table = Table(box=SIMPLE_HEAD)
    for name in ("topic", "partition", "lost offsets", "directory", "why"):
        table.add_column(name, overflow="fold")
    for one in found:
        lost = f"[{one.first}, {one.end})"
        why = one.why.partition(": ")[2].partition(";")[0] or one.why
        table.add_row(one.topic, str(one.partition), lost, one.directory, why)
    out.print(table)
    sum_lost = sum(one.end - one.first for one in found)
    verb = "would be given up" if dry_run else "given up"
    out.print(f"{pluralize(len(found), 'partition')}, {pluralize(sum_lost, 'offset')}: {verb}")
