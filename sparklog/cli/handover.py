"""`sparklog handover`: turns a log into a directory that a Kafka broker starts on."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table

from sparklog.cli.command import Command
from sparklog.cli.exit_codes import EXIT_OK
from sparklog.cli.open_log import check_log_dirs
from sparklog.cli.output import console, print_json
from sparklog.pluralize import pluralize
from sparklog.quantities import size_text
from sparklog.tools.handover.existing_cluster import hand_over_into
from sparklog.tools.handover.inventory import HandedTopic
from sparklog.tools.handover.log_handover import BrokerSettings, HandedOver, hand_over
from sparklog.tools.handover.server_properties import DEFAULT_LISTENERS


@click.command(cls=Command)
@click.argument("path")
@click.option("--check", is_flag=True, help="Show what would be done, and change nothing.")
@click.option(
    "--node-id", type=click.IntRange(0, 2**31 - 1), metavar="N",
    help="Set the broker's node.id. The default is 1, or the id in meta.properties if the log dirs "
    "came from a broker.",
)  # fmt: skip
@click.option(
    "--cluster-id", metavar="ID",
    help="Set the cluster's id. The default is the log's own id, or the id in meta.properties if "
    "the log dirs came from a broker.",
)  # fmt: skip
@click.option(
    "--listeners", default=DEFAULT_LISTENERS, show_default=True, metavar="NAME://HOST:PORT,...",
    help="Set the listeners of the broker. The listener named CONTROLLER serves its controller.",
)  # fmt: skip
@click.option(
    "--metadata-log-dir", metavar="DIR",
    help="Name the broker's metadata.log.dir, if it is not one of the log dirs.",
)  # fmt: skip
@click.option(
    "--into", metavar="DIRS",
    help="Copy topics into these log dirs of an existing Kafka broker instead, joined by commas. "
    "Stop the broker first. Its cluster must have no other broker. Only --topic, "
    "--metadata-log-dir and --check can be combined with this option.",
)  # fmt: skip
@click.option(
    "--topic", "topics", metavar="NAME", multiple=True,
    help="Copy only this topic. Requires --into. The default is all topics. Repeatable.",
)  # fmt: skip
@click.option(
    "--properties", metavar="FILE",
    help="Write the broker's settings to this file, in addition to printing them.",
)  # fmt: skip
@click.option(
    "--groups", metavar="FILE",
    help="Write the committed offsets of consumer groups to this CSV file. The command prints how "
    "to import the file into the broker with kafka-consumer-groups.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def handover(
    path: str,
    check: bool,
    node_id: int | None,
    cluster_id: str | None,
    listeners: str,
    metadata_log_dir: str | None,
    into: str | None,
    topics: tuple[str, ...],
    properties: str | None,
    groups: str | None,
    as_json: bool,
) -> int:
    """Prepare a log's directories so that an unmodified Kafka 4.1 broker can start on them.

    The broker is the only node of its cluster and its own controller. Topics retain their ids,
    configs, offsets and leader epochs. Before you run the command, stop all processes that have the
    log open. The command prints the broker's settings and the command that starts the broker. When
    the broker has stopped, the next sparklog process that opens the log for writing takes the log
    back, with the records that the broker appended.

    With --into the log stays with sparklog, and its topics are copied into an existing cluster.
    """
    check_log_dirs(path, "`sparklog export --all --to DIR` makes a log dir of it", offline=True)
    if into is not None:
        given = (node_id, cluster_id, properties, groups)
        if any(each is not None for each in given) or listeners != DEFAULT_LISTENERS:
            raise click.UsageError(
                "--into does not change the broker's settings; only --topic, --metadata-log-dir "
                "and --check can be combined with --into"
            )
        return _join(path, into, topics, metadata_log_dir, check=check, as_json=as_json)
    if topics:
        raise click.UsageError("--topic requires --into: without --into all topics are handed over")
    broker = BrokerSettings(
        node_id=node_id, cluster_id=cluster_id, listeners=listeners,
        metadata_log_dir=metadata_log_dir, properties_file=properties, groups_file=groups,
    )  # fmt: skip
    done = hand_over(path, broker, check=check)
    if as_json:
        print_json(to_dict(done))
        return EXIT_OK
    _show(done.topics, done.notes)
    click.echo(done.properties)
    _say(done)
    return EXIT_OK


def _join(
    path: str,
    into: str,
    topics: Sequence[str],
    metadata_log_dir: str | None,
    *,
    check: bool,
    as_json: bool,
) -> int:
    """Copy topics into an existing cluster (--into), and print the result."""
    done = hand_over_into(
        path, into, topics=topics or None, check=check, metadata_log_dir=metadata_log_dir
    )
    if as_json:
        print_json(asdict(done))
        return EXIT_OK
    _show(done.topics, done.notes)
    size = size_text(done.copied_bytes)
    said = "would be copied; nothing was changed" if done.check else "copied; start the broker"
    click.echo(f"{', '.join(done.directories)}: {size} {said}")
    return EXIT_OK


def _show(topics: Sequence[HandedTopic], notes: Sequence[str]) -> None:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("topic", "id", "partition", "start", "end", "leader epoch"):
        table.add_column(name, justify="left" if name in ("topic", "id") else "right")
    for topic in topics:
        for number, held in sorted(topic.partitions.items()):
            span = (str(number), str(held.start), str(held.end), str(held.leader_epoch))
            table.add_row(topic.name, topic.id, *span)
    console().print(table)
    for note in notes:
        click.echo(f"note: {note}")
    if notes:
        click.echo()


def _say(done: HandedOver) -> None:
    records = pluralize(done.metadata_records, "metadata record")
    where = "for a new cluster" if done.is_new_cluster else "to be added to the cluster's"
    dirs = ", ".join(done.directories)
    if done.check:
        click.echo(f"# {dirs}: {records} {where}; nothing was changed. What starts the broker then")
    else:
        click.echo(f"# {dirs}: node {done.node_id} of cluster {done.cluster_id}. Start the broker")
    saved = "" if done.properties_file else " (with the lines above in server.properties)"
    click.echo(f"# by{saved}:\n{done.command}")
    if done.groups:
        file = "" if done.groups_file else " (with --groups groups.csv)"
        click.echo(f"# and, once it runs, so that groups go on where they are{file}:")
        click.echo(done.groups_command)


def to_dict(done: HandedOver) -> dict[str, Any]:
    """Return the result of a handover as a JSON document."""
    document = asdict(done)
    document["groups"] = {
        group: [
            {"topic": topic, "partition": partition, "offset": offset}
            for (topic, partition), offset in offsets.items()
        ]
        for group, offsets in done.groups.items()
    }
    return document
