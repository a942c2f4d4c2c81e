"""`sparklog log-dirs`: what lies where, as kafka-log-dirs; moving it, and evening it out."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table

import sparklog
from sparklog.cli.command import Command
from sparklog.cli.exit_codes import EXIT_FAILED, EXIT_OK
from sparklog.cli.kafka_tools import KafkaTool, KafkaToolGroup
from sparklog.cli.open_log import check_log_dirs, to_change, to_read
from sparklog.cli.output import bytes_bar, console, print_json, print_table
from sparklog.cli.parsing import read_file
from sparklog.errors import SparklogError
from sparklog.fs import LOCAL
from sparklog.log.log import home_of
from sparklog.pluralize import pluralize
from sparklog.quantities import size_text, span_text
from sparklog.storage.moves import MovedPartition, MoveRequest
from sparklog.tools.log_dir_balance import WITHIN
from sparklog.tools.log_dirs import describe_log_dirs, node_of
from sparklog.tools.partition_moves import Balance, move_all, plan_log_dirs, read_reassignment


@click.group(cls=KafkaToolGroup, actions={}, default="describe")
def log_dirs() -> None:
    """A log's directories: what their partitions take; moving these, and evening them out."""


@log_dirs.command(cls=KafkaTool)
@click.argument("path")
@click.option("--describe", is_flag=True, help="Show the sizes (what it does in any case).")
@click.option("--topic-list", help="Only these topics, joined by ','.")
@click.option("--json", "as_json", is_flag=True, help="The JSON document of kafka-log-dirs.")
def describe(path: str, describe: bool, topic_list: str | None, as_json: bool) -> int:
    """Show the size of each partition in each log dir: the bytes of its .log files.

    PATH is one log dir or several.
    """
    check_log_dirs(path, "`sparklog topics describe` shows its sizes")
    wanted = None if topic_list is None else [name for name in topic_list.split(",") if name]
    document = describe_log_dirs(path, wanted)
    dirs = document["brokers"][0]["logDirs"]
    if as_json:
        print_json(document)
    else:
        rows = [
            [each["logDir"], part["partition"], size_text(part["size"]), part["isFuture"]]
            for each in dirs for part in each["partitions"]
        ]  # fmt: skip
        print_table(["log dir", "partition", "size", "moves here"], rows)
        for each in dirs:
            if each["error"]:
                click.echo(f"{each['logDir']}: {each['error']}", err=True)
    failed = any(each["error"] for each in dirs)
    return EXIT_FAILED if failed else EXIT_OK


_throttle = click.option(
    "--throttle", type=click.FloatRange(0, min_open=True), metavar="BYTES",
    help="Copy so many bytes a second at most.",
)  # fmt: skip


@log_dirs.command(cls=Command)
@click.argument("path")
@click.option("--topic", help="The topic of the partition that is to move.")
@click.option("--partition", type=click.IntRange(0), help="Its number.")
@click.option("--to", metavar="DIR", help="The log dir of the log that it moves to.")
@click.option(
    "--reassignment-json-file", type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Several moves, as kafka-reassign-partitions has them: of each partition `log_dirs`.",
)
@_throttle
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def move(
    path: str,
    topic: str | None,
    partition: int | None,
    to: str | None,
    reassignment_json_file: Path | None,
    throttle: float | None,
    as_json: bool,
) -> int:
    """Move a partition to another log dir, while it is written and read.

    PATH names all log dirs of the log, joined by ','; one that is named behind them is new, and
    empty. Each batch is checked on the way: damage, a full disk, whatever fails leaves the
    partition where it was. Without a partition it goes on with what was asked for and isn't done.
    """
    check_log_dirs(path, "all of it lies in one place")
    moves: list[MoveRequest] = []
    if reassignment_json_file is not None:
        asked = read_reassignment(read_file(reassignment_json_file, "--reassignment-json-file"))
        moves = [MoveRequest(*each.key, each.to, throttle) for each in asked if each.to]
    if topic is not None and partition is not None and to is not None:
        moves.append(MoveRequest(topic, partition, to, throttle))
    elif (topic, partition, to) != (None, None, None):
        raise click.UsageError(
            "give --topic, --partition and --to, or --reassignment-json-file"
        )
    elif not moves and reassignment_json_file is not None:
        raise click.UsageError(f"{reassignment_json_file} moves nothing: no log_dirs but any")
    with to_change(path, *{each.topic for each in moves}) as log:
        return carry_out(log, moves, as_json=as_json)


def carry_out(log: sparklog.Log, moves: Sequence[MoveRequest], *, as_json: bool) -> int:
    """Move partitions, or go on with what is asked for, and tell of it; returns the exit code."""

    def waits() -> None:
        click.echo("Another process moves partitions of this log; waiting for it.", err=True)

    with bytes_bar("moving", shown=not as_json) as progress:
        waited = move_all(
            log, moves, progress=progress, done=None if as_json else _tell, waits=waits
        )
    if as_json:
        print_json([_to_dict(one) for one in waited.done])
    else:
        for each in waited.there:
            click.echo(f"{each.topic}-{each.partition} lies in {each.to} already.")
        for each in waited.elsewhere:
            click.echo(f"Moved {each.topic}-{each.partition} to {each.to}, by another process.")
        for each in waited.cancelled:
            click.echo(f"{each.topic}-{each.partition}: its move was cancelled.", err=True)
        if not (moves or waited.done or waited.failed):
            click.echo("Nothing is to move.")
    if len(waited.failed) == 1 and isinstance(error := waited.failed[0][1], SparklogError):
        raise error
    for key, why in waited.failed:
        click.echo(f"{key} isn't moved: {why}", err=True)
    return EXIT_FAILED if waited.failed or waited.cancelled else EXIT_OK


def _tell(moved: MovedPartition) -> None:
    click.echo(
        f"Moved {moved.topic}-{moved.partition} from {moved.source} to {moved.target}: "
        f"{size_text(moved.bytes)} in {moved.took_ms} ms, writers waited {moved.locked_ms} ms."
    )


def _to_dict(moved: MovedPartition) -> dict[str, Any]:
    return {
        "topic": moved.topic, "partition": moved.partition, "from": moved.source,
        "to": moved.target, "bytes": moved.bytes, "took_ms": moved.took_ms,
        "locked_ms": moved.locked_ms,
    }  # fmt: skip


@log_dirs.command(cls=Command)
@click.argument("path")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def moves(path: str, as_json: bool) -> int:
    """Show the moves that are under way, wait or failed, by whomever they were asked for."""
    check_log_dirs(path, "all of it lies in one place")
    with to_read(path, offline=True) as log:
        found = log.moves()
        limit = home_of(log).moves.limited()
    if as_json:
        print_json([asdict(one) for one in found])
        return EXIT_OK
    if limit is not None:
        click.echo(f"All moves together copy {size_text(int(limit))} a second at most.")
    if not found:
        click.echo("Nothing is to move.")
        return EXIT_OK
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("topic", "partition", "from", "to", "state", "copied", "behind", "pace", "left"):
        table.add_column(name, justify="left" if name in _WORDS else "right")
    for one in found:
        table.add_row(
            one.topic, str(one.partition), one.source, one.target, one.state,
            f"{size_text(one.copied_bytes)} of {size_text(one.total_bytes)}",
            str(one.offset_lag) if one.offset_lag >= 0 else "-",
            "-" if one.bytes_per_second is None else f"{size_text(int(one.bytes_per_second))}/s",
            "-" if one.left_ms is None else span_text(one.left_ms),
        )  # fmt: skip
    console().print(table)
    for one in found:
        if one.error is not None:
            click.echo(f"{one.topic}-{one.partition}: {one.error}")
    if all(one.state != "moving" for one in found):
        click.echo(f"Nobody is at it; to go on: sparklog log-dirs move {path}")
    return EXIT_OK


_WORDS: Final = {"topic", "from", "to", "state"}


@log_dirs.command(cls=Command)
@click.argument("path")
@click.option("--topic", help="Only the moves of this topic.")
@click.option("--partition", type=click.IntRange(0), help="Only that of this partition of it.")
def cancel(path: str, topic: str | None, partition: int | None) -> int:
    """Cancel moves, by whomever they are carried out: the partitions stay where they are."""
    check_log_dirs(path, "all of it lies in one place")
    if partition is not None and topic is None:
        raise click.UsageError("--partition wants --topic")
    with to_change(path, *([] if topic is None else [topic])) as log:
        count = log.cancel_moves(topic, partition)
    click.echo(f"Cancelled {pluralize(count, 'move')}.")
    return EXIT_OK


@log_dirs.command(cls=Command)
@click.argument("path")
@click.option("--topic", "topics", multiple=True, help="Move only its partitions; or again.")
@click.option(
    "--within", type=click.FloatRange(0, 100), default=WITHIN * 100, show_default=True,
    metavar="PERCENT", help="So far from its share a log dir may be.",
)
@click.option("--execute", is_flag=True, help="Make it so; without it the plan is shown.")
@_throttle
@click.option("--json", "as_json", is_flag=True, help="The plan alone, for "
              "kafka-reassign-partitions and --reassignment-json-file; with --execute what moved.")
def balance(
    path: str,
    topics: Sequence[str],
    within: float,
    execute: bool,
    throttle: float | None,
    as_json: bool,
) -> int:
    """Show, or make, the moves after which all log dirs are evenly full; as few bytes as can be.

    A log dir's share is by its size: what the log has there and what is free. Log dirs that are
    offline are left out, and no disk is filled above what is free.
    """
    check_log_dirs(path, "all of it lies in one place")
    with to_read(path, offline=True) as log:
        found = plan_log_dirs(log, topics=topics or None, within=within / 100)
        node = node_of(LOCAL, found.directories[0])
    if not as_json:
        _show(found)
    if not execute:
        if as_json:
            click.echo(found.to_reassignment(node))
        elif found.plan.moves:
            click.echo(found.to_reassignment(node))
            click.echo("Nothing was moved: this is the plan. --execute carries it out.")
        return EXIT_OK
    if not found.plan.moves:
        return EXIT_OK
    requests = [request._replace(bytes_per_second=throttle) for request in found.requests]
    with to_change(path) as log:
        return carry_out(log, requests, as_json=as_json)


def _show(found: Balance) -> None:
    plan = found.plan
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("log dir", "now", "share", "then"):
        table.add_column(name, justify="left" if name == "log dir" else "right")
    rows = zip(found.directories, plan.before, plan.shares, plan.after, strict=True)
    for path, *sizes in rows:
        table.add_row(path, *map(size_text, sizes))
    console().print(table)
    for path, why in found.left_out.items():
        click.echo(f"{path} is left out: {why}")
    words = "All is even" if plan.is_even else "As even as it can be"
    if plan.moves:
        count = pluralize(len(plan.moves), "partition")
        has = "has" if len(plan.moves) == 1 else "have"
        click.echo(f"{words} once {count} of {size_text(plan.bytes)} {has} moved.")
    else:
        click.echo(f"{words}: nothing is to move.")
