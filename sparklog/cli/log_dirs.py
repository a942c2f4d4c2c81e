"""`sparklog log-dirs`: shows partition sizes per log dir, and moves partitions."""

from dataclasses import asdict

import click

from sparklog.cli.command import Command
from sparklog.cli.exit_codes import EXIT_FAILED, EXIT_OK
from sparklog.cli.kafka_tools import KafkaTool, KafkaToolGroup
from sparklog.cli.open_log import check_log_dirs, to_change
from sparklog.cli.output import bytes_bar, print_json, print_table
from sparklog.quantities import size_text
from sparklog.tools.log_dirs import describe_log_dirs


@click.group(cls=KafkaToolGroup, actions={}, default="describe")
def log_dirs() -> None:
    """Show the sizes of partitions by log dir, or move a partition to another log dir.

    `sparklog log-dirs PATH` is the same as `sparklog log-dirs describe PATH`.
    """


@log_dirs.command(cls=KafkaTool)
@click.argument("path")
@click.option(
    "--describe", is_flag=True,
    help="Accept this flag of kafka-log-dirs. It has no effect.",
)  # fmt: skip
@click.option(
    "--topic-list", metavar="NAME,...",
    help="Show only these topics, joined by commas. The default is all topics.",
)  # fmt: skip
@click.option(
    "--json", "as_json", is_flag=True,
    help="Print the JSON document that kafka-log-dirs prints.",
)  # fmt: skip
def describe(path: str, describe: bool, topic_list: str | None, as_json: bool) -> int:
    """Show the size of each partition, the total of its .log files, by log dir.

    The exit code is 1 if a log dir cannot be read.
    """
    check_log_dirs(path, "`sparklog topics describe` shows its sizes")
    wanted = None if topic_list is None else [name for name in topic_list.split(",") if name]
    document = describe_log_dirs(path, wanted)
    dirs = document["brokers"][0]["logDirs"]
    if as_json:
        print_json(document)
    else:
        rows = [
            [each["logDir"], part["partition"], size_text(part["size"])]
            for each in dirs for part in each["partitions"]
        ]  # fmt: skip
        print_table(["log dir", "partition", "size"], rows)
        for each in dirs:
            if each["error"]:
                click.echo(f"{each['logDir']}: {each['error']}", err=True)
    failed = any(each["error"] for each in dirs)
    return EXIT_FAILED if failed else EXIT_OK


@log_dirs.command(cls=Command)
@click.argument("path")
@click.option(
    "--topic", metavar="NAME", required=True, help="Move a partition of this topic."
)
@click.option(
    "--partition", type=click.IntRange(0), metavar="N", required=True,
    help="Move the partition with this number.",
)  # fmt: skip
@click.option("--to", metavar="DIR", required=True, help="Move the partition to this log dir.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def move(path: str, topic: str, partition: int, to: str, as_json: bool) -> int:
    """Move a partition to another log dir, for example to another disk.

    Stop the services, endpoints and queries that write to the log first; readers may continue. To
    add a log dir to the log, append it to PATH; it must be empty. The CRC of each record batch is
    verified. If the move fails, the partition stays in its old log dir.
    """
    check_log_dirs(path, "its partitions are all in that store")
    with to_change(path, topic) as log, bytes_bar("moving", shown=not as_json) as progress:
        moved = log.move_partition(topic, partition, to, progress=progress)
    if as_json:
        print_json(asdict(moved))
    else:
        click.echo(
            f"Moved {topic}-{partition} from {moved.source} to {moved.target}: "
            f"{size_text(moved.bytes)} in {moved.took_ms} ms."
        )
    return EXIT_OK
