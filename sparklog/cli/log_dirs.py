"""`sparklog log-dirs`: kafka-log-dirs' document, without a broker."""

import click

from sparklog.cli.command import Command
from sparklog.cli.exit_codes import EXIT_FAILED, EXIT_OK
from sparklog.cli.open_log import check_log_dirs
from sparklog.tools.log_dirs import as_kafka, describe_log_dirs


@click.command("log-dirs", cls=Command)
@click.argument("path")
@click.option("--describe", is_flag=True, help="Print the document (the only thing there is).")
@click.option("--topic-list", help="Only these topics, joined by ','.")
@click.option("--json", "as_json", is_flag=True, help="The document without the lines before it.")
def log_dirs(path: str, describe: bool, topic_list: str | None, as_json: bool) -> int:
    """Show what the partitions of each log dir take on disk, as kafka-log-dirs --describe does.

    Two lines of text, then JSON: sizes are bytes of .log files. PATH is one log dir or several.
    """
    check_log_dirs(path, "`sparklog topics describe` shows its sizes")
    wanted = None if topic_list is None else [name for name in topic_list.split(",") if name]
    document = describe_log_dirs(path, wanted)
    if not as_json:
        click.echo("Querying brokers for log directories information")
        click.echo(
            f"Received log directory information from brokers {document['brokers'][0]['broker']}"
        )
    click.echo(as_kafka(document))
    failed = any(each["error"] for each in document["brokers"][0]["logDirs"])
    return EXIT_FAILED if failed else EXIT_OK
