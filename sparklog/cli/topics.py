"""`sparklog topics`: lists, describes, creates, alters and deletes topics, like kafka-topics."""

import shlex
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from sparklog.cli.exit_codes import EXIT_OK
from sparklog.cli.kafka_tools import KafkaToolGroup, replication_factor
from sparklog.cli.open_log import check_creation, to_change, to_read
from sparklog.cli.output import console, print_json
from sparklog.cli.storage import StoreAccess, access_options
from sparklog.clock import system_clock
from sparklog.errors import InvalidRequestError
from sparklog.log.log import Log
from sparklog.opening import open_log
from sparklog.quantities import duration_text, size_text
from sparklog.storage.deleted_topic import DeletedTopicInfo
from sparklog.tools.configs import changed_configs, parse_configs
from sparklog.tools.topics import TopicDescription, describe_topics, matching

_FAR_MS: Final = 253_402_300_799_000  # the year 9999
_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
_topic = click.option("--topic", metavar="NAME", required=True, help="Select the topic by name.")
_config = click.option(
    "--config", "configs", multiple=True, metavar="KEY=VALUE",
    help="Set a config of the topic under its Kafka name, such as retention.ms=86400000 "
    "(docs/options.md). Repeatable.",
)  # fmt: skip
_exclude = click.option(
    "--exclude-internal", is_flag=True,
    help="Leave out the internal topics of Kafka brokers, such as __consumer_offsets.",
)  # fmt: skip

_if_exists = click.option(
    "--if-exists", is_flag=True,
    help="Do nothing if the topic does not exist.",
)  # fmt: skip


@click.group(
    cls=KafkaToolGroup,
    actions={f"--{name}": name for name in ("list", "describe", "create", "alter", "delete")},
)
def topics() -> None:
    """List, describe, create, alter, delete and undelete topics, like kafka-topics."""


@topics.command("list")
@click.argument("path")
@click.option(
    "--topic", metavar="NAME|REGEX",
    help="Select this topic, or all topics whose entire name matches this regular expression. The "
    "default is all topics.",
)  # fmt: skip
@_exclude
@click.option(
    "--deleted", is_flag=True,
    help="List the deleted topics that `sparklog topics undelete` can restore instead, and until "
    "when it can.",
)
@access_options
@_json
def list_topics(
    path: str,
    topic: str | None,
    exclude_internal: bool,
    deleted: bool,
    access: StoreAccess,
    as_json: bool,
) -> int:
    """Print the names of a log's topics, one per line."""
    if deleted:
        return _list_deleted(path, topic, access, as_json=as_json)
    with to_read(path, access) as log:
        names = matching(log.topics(), topic, exclude_internal=exclude_internal)
    if as_json:
        print_json(names)
    else:
        for name in names:
            click.echo(name)
    return EXIT_OK


def _list_deleted(path: str, topic: str | None, access: StoreAccess, *, as_json: bool) -> int:
    with to_read(path, access) as log:
        found = log.deleted_topics()
    names = matching({one.name for one in found}, topic)
    rows = [one for one in found if one.name in names]
    now_ms = system_clock()
    if as_json:
        print_json([_deleted_to_dict(one, now_ms) for one in rows])
        return EXIT_OK
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("topic", "topic id", "partitions", "records", "deleted", "until", "left"):
        right = name in ("partitions", "records", "left")
        table.add_column(name, justify="right" if right else "left", overflow="fold")
    for one in rows:
        table.add_row(
            Text(one.name), one.id, str(one.partitions), f"{one.records:,}",
            _time_text(one.deleted_ms), _time_text(one.until_ms), _left_text(one, now_ms),
        )  # fmt: skip
    if rows:
        console().print(table)
    return EXIT_OK


def _deleted_to_dict(one: DeletedTopicInfo, now_ms: int) -> dict[str, Any]:
    return {
        "topic": one.name, "topic_id": one.id, "partitions": one.partitions,
        "records": one.records, "deleted_ms": one.deleted_ms, "until_ms": one.until_ms,
        "left_ms": max(0, one.until_ms - now_ms), "configs": dict(one.config),
    }  # fmt: skip


def _time_text(time_ms: int) -> str:
    if time_ms > _FAR_MS:
        return "for ever"
    return datetime.fromtimestamp(time_ms / 1000).astimezone().isoformat(timespec="seconds")


def _left_text(one: DeletedTopicInfo, now_ms: int) -> str:
    left_ms = one.until_ms - now_ms
    return duration_text(left_ms) if left_ms > 0 else "over"


@topics.command()
@click.argument("path")
@click.option(
    "--topic", metavar="NAME|REGEX",
    help="Select this topic, or all topics whose entire name matches this regular expression. The "
    "default is all topics.",
)  # fmt: skip
@click.option("--topic-id", metavar="ID", help="Describe only the topic with this id.")
@_exclude
@click.option("--if-exists", is_flag=True, help="Print nothing if the topic does not exist.")
@click.option(
    "--topics-with-overrides", is_flag=True,
    help="Describe only topics for which configs were set.",
)  # fmt: skip
@click.option("--unavailable-partitions", is_flag=True, help="Describe only offline partitions.")
@access_options
@_json
def describe(
    path: str,
    topic: str | None,
    topic_id: str | None,
    exclude_internal: bool,
    if_exists: bool,
    topics_with_overrides: bool,
    unavailable_partitions: bool,
    access: StoreAccess,
    as_json: bool,
) -> int:
    """Show the ids and configs of topics, and the offsets, size and directory of each partition.

    The column start shows the log start offset, end the high watermark, and remote only the number
    of segments that exist in remote storage only.
    """
    with to_read(path, access) as log:
        known = log.topics()
        names = matching(known, topic, exclude_internal=exclude_internal)
        names = [name for name in names if topic_id in (None, known[name].id)]
        if (topic is not None or topic_id is not None) and not names and not if_exists:
            raise InvalidRequestError(
                f"topic {topic or topic_id} is not in {path}; its topics: "
                f"{', '.join(sorted(known)) or 'none'}"
            )
        found = describe_topics(log, [known[name] for name in names])
    if topics_with_overrides:
        found = [each for each in found if each.configs]
    if unavailable_partitions:
        found = [offline for each in found if (offline := each.offline()).partitions]
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
    "--partitions", default=1, show_default=True, type=click.IntRange(1), metavar="N",
    help="Create the topic with this many partitions.",
)  # fmt: skip
@replication_factor
@_config
@click.option("--if-not-exists", is_flag=True, help="Do nothing if the topic exists.")
@access_options
@_json
def create(
    path: str,
    topic: str,
    partitions: int,
    configs: Sequence[str],
    if_not_exists: bool,
    access: StoreAccess,
    as_json: bool,
) -> int:
    """Create a topic, and the log at PATH if there is none.

    Topics can also be created by the first write of a query. Without --if-not-exists the command
    fails if the topic exists.
    """
    config = parse_configs(configs)
    check_creation(path, topic, config)
    with open_log(path, mode="rw", storage_options=access.storage, options=access.options) as log:
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
@click.option(
    "--partitions", type=click.IntRange(1), metavar="N",
    help="Increase the number of partitions to this number. It cannot decrease.",
)  # fmt: skip
@_config
@click.option(
    "--delete-config", "deleted", metavar="KEY", multiple=True,
    help="Reset this config to its default. Repeatable.",
)  # fmt: skip
@_if_exists
@access_options
@_json
def alter(
    path: str,
    topic: str,
    partitions: int | None,
    configs: Sequence[str],
    deleted: Sequence[str],
    if_exists: bool,
    access: StoreAccess,
    as_json: bool,
) -> int:
    """Add partitions to a topic, or change its configs.

    At least one of --partitions, --config and --delete-config is required.
    """
    config = parse_configs(configs)
    if partitions is None and not config and not deleted:
        raise click.UsageError(
            "no change is requested: pass --partitions, --config or --delete-config"
        )
    if if_exists and not _is_there(path, topic, access):
        return EXIT_OK
    with to_change(path, topic, access=access) as log:
        log.alter_topic(topic, partitions, changed_configs(log.topic(topic), config, deleted))
        if as_json:
            _print_one(log, topic)
    if not as_json:
        click.echo(f"Altered topic {topic}.")
    return EXIT_OK


@topics.command()
@click.argument("path")
@_topic
@_if_exists
@click.option(
    "--now", is_flag=True,
    help="Delete the topic permanently, and free its space at once. The topic may already have "
    "been deleted without --now.",
)
@access_options
@_json
def delete(
    path: str, topic: str, if_exists: bool, now: bool, access: StoreAccess, as_json: bool
) -> int:
    """Delete a topic with all its records.

    `sparklog topics undelete` can restore the topic until its file.delete.delay.ms has passed
    (default: 60000, one minute). Afterwards the service, or the next process that opens the log for
    writing, deletes the topic's files and its copies in remote storage.
    """
    with to_read(path, access) as log:
        there = topic in log.topics()
        deleted = [] if there or not now else log.deleted_topics()
    there = there or any(one.name == topic for one in deleted)
    delay_ms = 0
    if there or not if_exists:
        with to_change(path, *([] if deleted else [topic]), access=access) as log:
            delay_ms = log.delete_topic(topic, now=now)
    if as_json:
        print_json({"topic": topic, "deleted": there, "undelete_ms": delay_ms})
    elif there and delay_ms:
        until = _time_text(system_clock() + delay_ms)
        click.echo(
            f"Deleted topic {topic}. Until {until} this command restores it: "
            f"sparklog topics undelete {shlex.quote(path)} --topic {topic}"
        )
    elif there:
        click.echo(f"Deleted topic {topic}.")
    return EXIT_OK


@topics.command()
@click.argument("path")
@click.option(
    "--topic", metavar="NAME", required=True, help="Restore the deleted topic with this name."
)
@click.option(
    "--topic-id", metavar="ID",
    help="Restore the topic with this id, if several topics of the name were deleted. The default "
    "is the topic that was deleted last.",
)  # fmt: skip
@click.option(
    "--as", "new_name", metavar="NAME",
    help="Restore the topic under this name. Required if a new topic has the old name, and only "
    "possible in log dirs. The default is the old name.",
)
@access_options
@_json
def undelete(
    path: str,
    topic: str,
    topic_id: str | None,
    new_name: str | None,
    access: StoreAccess,
    as_json: bool,
) -> int:
    """Restore a deleted topic with its id, configs, records and offsets.

    A topic can be restored until its file.delete.delay.ms has passed. `sparklog topics list PATH
    --deleted` shows the topics that can be restored.
    """
    with to_change(path, access=access) as log:
        given = log.undelete_topic(topic, topic_id=topic_id, new_name=new_name)
        if as_json:
            _print_one(log, given.name)
    if not as_json:
        renamed = f" as {given.name}" if given.name != topic else ""
        click.echo(f"Topic {topic} is back{renamed}, with id {given.id}.")
    return EXIT_OK


def _is_there(path: str, topic: str, access: StoreAccess) -> bool:
    with to_read(path, access) as log:
        return topic in log.topics()


def _print_one(log: Log, topic: str) -> None:
    print_json(describe_topics(log, [log.topic(topic)])[0].to_dict())
