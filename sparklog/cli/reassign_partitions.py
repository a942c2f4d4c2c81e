"""`sparklog reassign-partitions`: kafka-reassign-partitions, which here moves between log dirs.

There is one broker, so a reassignment says of a partition in which log dir it is to be. Words are
Kafka's. Source: ReassignPartitionsCommand (Kafka 4.1).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from sparklog.cli.exit_codes import EXIT_OK
from sparklog.cli.kafka_tools import KafkaTool, KafkaToolGroup
from sparklog.cli.log_dirs import carry_out
from sparklog.cli.open_log import check_log_dirs, to_change, to_read
from sparklog.cli.parsing import read_file
from sparklog.common import TopicPartition
from sparklog.errors import InvalidRequestError
from sparklog.fs import LOCAL
from sparklog.log.log import home_of
from sparklog.logdir.paths import split_path
from sparklog.storage.moves import MoveRequest, MoveStatus
from sparklog.tools.log_dirs import node_of
from sparklog.tools.partition_moves import (
    Reassigned,
    as_reassignment,
    places_of,
    plan_log_dirs,
    read_reassignment,
    read_topics_to_move,
)

_ACTIONS: Final = ("generate", "execute", "verify", "cancel", "list")
_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)
_plan = click.option(
    "--reassignment-json-file", "file", required=True, type=_FILE,
    help="Partitions, and of each `log_dirs`, the one where it is to be.",
)  # fmt: skip
_ONE_PLACE: Final = "all of it lies in one place"


@click.group(
    "reassign-partitions", cls=KafkaToolGroup, actions={f"--{name}": name for name in _ACTIONS}
)
def reassign() -> None:
    """Partitions move between a log's directories, as kafka-reassign-partitions has it."""


def _no_throttle(context: click.Context, option: click.Parameter, given: Any) -> None:
    if given is not None:
        raise click.BadParameter(
            "nothing is copied between brokers; between log dirs: "
            "--replica-alter-log-dirs-throttle",
            ctx=context, param=option,
        )  # fmt: skip


def _read(path: str, file: Path) -> tuple[int, list[Reassigned]]:
    """Return the node's id and what a file asks for. Raises: InvalidRequestError."""
    check_log_dirs(path, _ONE_PLACE)
    node, asked = node_of(LOCAL, split_path(path)[0]), read_reassignment(
        read_file(file, "--reassignment-json-file")
    )
    if not asked:
        raise InvalidRequestError("Partition reassignment list cannot be empty")
    for each in asked:
        if each.replicas not in ((), (node,)):
            raise InvalidRequestError(
                f"{each.key}: replicas {list(each.replicas)} can't be: a log has one copy of each "
                f"record, on broker {node}, the only one there is; say where by log_dirs"
            )
    return node, asked


@reassign.command(cls=KafkaTool)
@click.argument("path")
@click.option(
    "--topics-to-move-json-file", "file", required=True, type=_FILE,
    help='The topics: {"topics": [{"topic": "t"}], "version": 1}.',
)  # fmt: skip
@click.option("--broker-list", required=True, help="The one broker: its number.")
@click.option("--disable-rack-aware", is_flag=True, help="What it is in any case.")
def generate(path: str, file: Path, broker_list: str, disable_rack_aware: bool) -> int:
    """Propose where topics' partitions are to be so that all log dirs are evenly full.

    The first document is how it is, to go back to; the second is for --execute.
    """
    check_log_dirs(path, _ONE_PLACE)
    node, topics = node_of(LOCAL, split_path(path)[0]), read_topics_to_move(
        read_file(file, "--topics-to-move-json-file")
    )
    if broker_list != str(node):
        raise InvalidRequestError(
            f"--broker-list {broker_list}: there is one broker here, {node}; to what other disks "
            "topics go say log dirs: PATH names all of them"
        )
    with to_read(path) as log:
        keys = [TopicPartition(name, p) for name in topics for p in log.topic(name).dirs]
        now = places_of(log, keys)
        plan = plan_log_dirs(log, topics=topics)
    then = now | {move.held.key: plan.directories[move.target] for move in plan.plan.moves}
    click.echo(f"Current partition replica assignment\n{as_reassignment(now, node)}\n")
    click.echo(f"Proposed partition reassignment configuration\n{as_reassignment(then, node)}")
    return EXIT_OK


@reassign.command(cls=KafkaTool)
@click.argument("path")
@_plan
@click.option(
    "--replica-alter-log-dirs-throttle", "throttle", type=click.IntRange(1), metavar="BYTES",
    help="Copy so many bytes a second at most, until it is done.",
)  # fmt: skip
@click.option(
    "--throttle", "between_brokers", callback=_no_throttle, expose_value=False, hidden=True,
)  # fmt: skip
@click.option("--additional", is_flag=True, help="What it is in any case: others go on.")
def execute(path: str, file: Path, throttle: int | None, additional: bool) -> int:
    """Move partitions to their log dirs, and wait until they are there."""
    node, asked = _read(path, file)
    with to_change(path, *{each.key.topic for each in asked}) as log:
        now = places_of(log, [each.key for each in asked])
        click.echo(
            f"Current partition replica assignment\n\n{as_reassignment(now, node)}\n\n"
            "Save this to use as the --reassignment-json-file option during rollback"
        )
        if throttle is not None:
            click.echo(f"The replica-alter-dir throttle limit was set to {throttle} B/s")
        wanted = [MoveRequest(*each.key, each.to, throttle) for each in asked if each.to]
        names = ",".join(str(each.key) for each in sorted(asked, key=lambda each: each.key))
        plural = "" if len(asked) == 1 else "s"
        click.echo(f"Successfully started partition reassignment{plural} for {names}")
        return carry_out(log, wanted, as_json=False) if wanted else EXIT_OK


@reassign.command(cls=KafkaTool)
@click.argument("path")
@_plan
@click.option("--preserve-throttles", is_flag=True, help="Leave a rate that a client set.")
def verify(path: str, file: Path, preserve_throttles: bool) -> int:
    """Tell of each partition whether it is where it is to be, or on its way."""
    node, asked = _read(path, file)
    asked.sort(key=lambda each: each.key)
    with to_read(path, offline=True) as log:
        moves = {TopicPartition(m.topic, m.partition): m for m in log.moves()}
        limit = home_of(log).moves.limited()
        topics = {name: info.dirs for name, info in log.topics().items()}
    click.echo("Status of partition reassignment:")
    for each in asked:
        if each.key.partition in topics.get(each.key.topic, {}):
            click.echo(f"Reassignment of partition {each.key} is completed.")
        else:
            click.echo(
                f"There is no active reassignment of partition {each.key}, but replica set is  "
                f"rather than {node}."
            )
    click.echo()
    for each in asked:
        if each.to is not None:
            click.echo(_state(each, topics, moves.get(each.key), node))
    if limit is not None and not moves and not preserve_throttles:
        click.echo(f"Clearing broker-level throttles on broker {node}")
        with to_change(path) as log:
            home_of(log).moves.limit(None)
    return EXIT_OK


def _state(
    asked: Reassigned,
    topics: Mapping[str, Mapping[int, str]],
    move: MoveStatus | None,
    node: int,
) -> str:
    """Tell of one as Kafka does; of one that failed why."""
    key, to = asked.key, asked.to
    place = topics.get(key.topic, {}).get(key.partition)
    if place is None:
        return f"Partition {key} cannot be found in any live log directory on broker {node}."
    here = str(Path(place).parent)
    if move is None:
        if here == to:
            return f"Reassignment of replica {key}-{node} completed successfully."
        return (
            f"Partition {key} on broker {node} is not being moved from log dir {here} to {to}."
        )
    if move.target != to:
        return (
            f"Partition {key} on broker {node} is being moved to log dir {move.target} instead of "
            f"{to}."
        )
    failed = "" if move.error is None else f" It failed, and is tried again: {move.error}"
    return f"Reassignment of replica {key}-{node} is still in progress.{failed}"


@reassign.command(cls=KafkaTool)
@click.argument("path")
@_plan
@click.option("--preserve-throttles", is_flag=True, help="Leave a rate that a client set.")
def cancel(path: str, file: Path, preserve_throttles: bool) -> int:
    """Cancel the moves of partitions; they stay where they are."""
    node, asked = _read(path, file)
    click.echo("None of the specified partition reassignments are active.")
    with to_change(path, *{each.key.topic for each in asked}) as log:
        keys = [each.key for each in asked if each.to is not None]
        gone = home_of(log).moves.cancel(keys) if keys else []
        if not preserve_throttles and home_of(log).moves.limited() is not None:
            click.echo(f"Clearing broker-level throttles on broker {node}")
            home_of(log).moves.limit(None)
    if gone:
        names = ",".join(f"{key}-{node}" for key in sorted(gone))
        click.echo(f"Successfully cancelled moves for: {names}")
    else:
        click.echo("None of the specified partition moves are active.")
    return EXIT_OK


@reassign.command("list", cls=KafkaTool)
@click.argument("path")
def list_(path: str) -> int:
    """Tell of moves that are under way: Kafka's tool knows those between brokers alone."""
    check_log_dirs(path, _ONE_PLACE)
    with to_read(path, offline=True) as log:
        found: Sequence[Any] = log.moves()
    click.echo("No partition reassignments found.")
    for move in found:
        click.echo(
            f"{move.topic}-{move.partition}: from log dir {move.source} to {move.target}, "
            f"{move.copied_bytes} of {move.total_bytes} bytes, {move.state}."
        )
    return EXIT_OK
