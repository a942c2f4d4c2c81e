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
    "--topic", metavar="NAME|REGEX",
    help="Print the offsets of this topic, or of all topics whose entire name matches this regular "
    "expression. The default is all topics.",
)  # fmt: skip
@click.option("--partitions", metavar="0,1,...", help="Print only these partitions of each topic.")
@click.option(
    "--topic-partitions", metavar="TOPIC:PARTITION,...",
    help="Print these partitions. TOPIC is a name or a regular expression. PARTITION is a number "
    "(t:2) or a range whose end is excluded (t:0-3, t:2-, t:-3); without it all partitions are "
    "printed. Excludes --topic and --partitions.",
)  # fmt: skip
@click.option(
    "--time", "when", default="latest", show_default=True, metavar="TIME",
    help="Print the offset of the first record at or after this time, in ms since the epoch or in "
    "ISO form. Or a special value: -1 or latest (the end), -2 or earliest (the log start), -3 or "
    "max-timestamp (the record with the highest timestamp), -4 or earliest-local (the first offset "
    "in local segments), -5 or latest-tiered (the last offset in remote storage).",
)  # fmt: skip
@click.option(
    "--exclude-internal-topics", is_flag=True,
    help="Leave out the internal topics of Kafka brokers, such as __consumer_offsets.",
)  # fmt: skip
@access_options
@click.option(
    "--json", "as_json", is_flag=True,
    help='Print one JSON document, such as {"topic": {"0": 5}}.',
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
    """Print the start or end offset of each partition, or the offset at a time.

    The output has a line TOPIC:PARTITION:OFFSET per partition, like kafka-get-offsets. As in Kafka,
    a partition without a record at or after the time is left out.
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
