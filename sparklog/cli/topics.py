"""`sparklog topics`: what kafka-topics does, on a log dir."""

from collections.abc import Sequence

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

import sparklog
from sparklog.cli.command import Group
from sparklog.cli.exit_codes import EXIT_OK
from sparklog.cli.open_log import check_creation, to_change, to_read
from sparklog.cli.output import console, print_json, size_text
from sparklog.cli.storage import Reach, reach_options
from sparklog.errors import InvalidRequestError
from sparklog.log.log import Log
from sparklog.tools.configs import changed_configs, parse_configs
from sparklog.tools.topics import TopicDescription, describe_topics, matching

_json = click.option("--json", "as_json", is_flag=True, help="One JSON document.")
_topic = click.option("--topic", required=True, help="The topic's name.")
_config = click.option(
    "--config", "configs", multiple=True, metavar="KEY=VALUE",
    help="A topic config of Kafka's, such as retention.ms=86400000; may be given several times.",
)  # fmt: skip
_exclude = click.option(
    "--exclude-internal", is_flag=True, help="Without the topics that brokers keep for themselves."
)


@click.group(cls=Group)
def topics() -> None:
    """A log's topics: list, describe, create, alter, delete (kafka-topics)."""


@topics.command("list")
@click.argument("path")
@click.option("--topic", help="Only this one, or those that match a regular expression.")
@_exclude
@reach_options
@_json
def list_topics(
    path: str, topic: str | None, exclude_internal: bool, reach: Reach, as_json: bool
) -> int:
    """Print the names of the topics of the log at PATH."""
    with to_read(path, reach) as log:
        names = matching(log.topics(), topic, exclude_internal=exclude_internal)
    if as_json:
        print_json(names)
    else:
        for name in names:
            click.echo(name)
    return EXIT_OK


@topics.command()
@click.argument("path")
@click.option("--topic", help="Only this one, or those that match a regular expression.")
@_exclude
@reach_options
@_json
def describe(
    path: str, topic: str | None, exclude_internal: bool, reach: Reach, as_json: bool
) -> int:
    """Show ids, configs that were set, and each partition's place, offsets and size.

    START is the log start offset, END the high watermark. PATH may be an archive's URL.
    """
    with to_read(path, reach) as log:
        known = log.topics()
        names = matching(known, topic, exclude_internal=exclude_internal)
        if topic is not None and not names:
            raise InvalidRequestError(
                f"topic {topic} is not in {path}; its topics: {', '.join(sorted(known)) or 'none'}"
            )
        found = describe_topics(log, [known[name] for name in names])
    if as_json:
        print_json([each.to_dict() for each in found])
    else:
        for each in found:
            _print(each)
    return EXIT_OK


def _print(found: TopicDescription) -> None:
    configs = ",".join(f"{key}={value}" for key, value in found.configs.items())
    click.echo(
        f"Topic: {found.topic}\tTopicId: {found.topic_id or '-'}\t"
        f"PartitionCount: {found.partition_count}\tConfigs: {configs}"
    )
    is_remote = any(part.remote_segments for part in found.partitions)
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    names = ["partition", "start", "end", "size", "segments", "leader epoch", "dir"]
    if is_remote:
        names.insert(5, "remote only")
    for name in names:
        table.add_column(name, justify="left" if name == "dir" else "right", overflow="fold")
    for part in found.partitions:
        row = [
            str(part.partition), str(part.start), str(part.end), size_text(part.size),
            str(part.segments), "-" if part.leader_epoch is None else str(part.leader_epoch),
        ]  # fmt: skip
        if is_remote:
            row.insert(5, str(part.remote_segments))
        table.add_row(*row, Text(part.dir))
    console().print(table)
    for part in found.partitions:
        if part.offline is not None:
            click.echo(f"{found.topic}-{part.partition} is offline: {part.offline}")


@topics.command()
@click.argument("path")
@_topic
@click.option(
    "--partitions", default=1, show_default=True, type=click.IntRange(1), help="How many."
)
@_config
@click.option("--if-not-exists", is_flag=True, help="Do nothing if the topic is there.")
@reach_options
@_json
def create(
    path: str,
    topic: str,
    partitions: int,
    configs: Sequence[str],
    if_not_exists: bool,
    reach: Reach,
    as_json: bool,
) -> int:
    """Make a topic; also the log at PATH, where there is nothing yet."""
    config = parse_configs(configs)
    check_creation(path, topic, config)
    with sparklog.open(path, "rw", storage_options=reach.storage, options=reach.options) as log:
        there = topic in log.topics()
        log.create_topic(topic, partitions, config, if_not_exists=if_not_exists)
        if as_json:
            _print_one(log, topic)
    if not as_json and not there:
        click.echo(f"Created topic {topic}.")
    return EXIT_OK


@topics.command()
@click.argument("path")
@_topic
@click.option("--partitions", type=click.IntRange(1), help="How many there are to be; never fewer.")
@_config
@click.option("--delete-config", "deleted", multiple=True, help="A config to be as by default.")
@reach_options
@_json
def alter(
    path: str,
    topic: str,
    partitions: int | None,
    configs: Sequence[str],
    deleted: Sequence[str],
    reach: Reach,
    as_json: bool,
) -> int:
    """Add partitions to a topic, or change its configs."""
    config = parse_configs(configs)
    if partitions is None and not config and not deleted:
        raise click.UsageError("nothing to alter: give --partitions, --config or --delete-config")
    with to_change(path, topic, reach=reach) as log:
        log.alter_topic(topic, partitions, changed_configs(log.topic(topic), config, deleted))
        if as_json:
            _print_one(log, topic)
    if not as_json:
        click.echo(f"Altered topic {topic}.")
    return EXIT_OK


@topics.command()
@click.argument("path")
@_topic
@click.option("--if-exists", is_flag=True, help="Do nothing if the topic isn't there.")
@reach_options
@_json
def delete(path: str, topic: str, if_exists: bool, reach: Reach, as_json: bool) -> int:
    """Delete a topic and its files. It can't be undone."""
    with to_read(path, reach) as log:
        there = topic in log.topics()
    if there or not if_exists:
        with to_change(path, topic, reach=reach) as log:
            log.delete_topic(topic)
    if as_json:
        print_json({"topic": topic, "deleted": there})
    elif there:
        click.echo(f"Deleted topic {topic}.")
    return EXIT_OK


def _print_one(log: Log, topic: str) -> None:
    print_json(describe_topics(log, [log.topic(topic)])[0].to_dict())
