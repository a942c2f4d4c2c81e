"""`sparklog get-offsets`: prints topic:partition:offset, like kafka-get-offsets."""

import click

from sparklog.cli.exit_codes import EXIT_OK
from sparklog.cli.kafka_tools import KafkaTool
from sparklog.cli.open_log import to_read
from sparklog.cli.output import print_json
from sparklog.cli.storage import StoreAccess, access_options
from sparklog.tools.get_offsets import OffsetQuery, get_offsets, parse_partitions, parse_time


@click.command("get-offsets", cls=KafkaTool)
@click.argument("path")
@click.option(
    "--topic",
    help="Print offsets of this topic, or of those that match a regular expression. The default "
    "is all topics.",
)  # fmt: skip
@click.option("--partitions", metavar="0,1,...", help="Print only these partitions.")
@click.option(
    "--topic-partitions", metavar="TOPIC:PARTITION,...",
    help="Print these partitions: topics or regular expressions, each alone, with a partition "
    "(t:2) or with a range without its end (t:0-3, t:2-, t:-3).",
)  # fmt: skip
@click.option(
    "--time", "when", default="latest", show_default=True,
    help="Print offsets by this: -1 or latest, -2 or earliest, -3 or max-timestamp, -4 or "
    "earliest-local, -5 or latest-tiered; or milliseconds or an ISO time, for the first record at "
    "or after it.",
)  # fmt: skip
@click.option(
    "--exclude-internal-topics", is_flag=True,
    help="Leave out the internal topics of brokers.",
)  # fmt: skip
@access_options
@click.option(
    "--json", "as_json", is_flag=True,
    help='Print one JSON document: {"topic": {"0": 5}}.',
)  # fmt: skip
def offsets(
    path: str,
    topic: str | None,
    partitions: str | None,
    topic_partitions: str | None,
    when: str,
    exclude_internal_topics: bool,
    access: StoreAccess,
    as_json: bool,
) -> int:
    """Print the offset of each partition at a time.

    A partition that has only older records is left out, as in Kafka's tool. PATH may be an
    archive's URL.
    """
    query = OffsetQuery(
        topic=topic,
        partitions=None if partitions is None else parse_partitions(partitions),
        topic_partitions=topic_partitions,
        time=parse_time(when),
        exclude_internal_topics=exclude_internal_topics,
    )
    with to_read(path, access) as log:
        found = get_offsets(log, query)
    if as_json:
        print_json(found)
        return EXIT_OK
    for name, by_partition in found.items():
        for partition, offset in by_partition.items():
            click.echo(f"{name}:{partition}:{offset}")
    return EXIT_OK
