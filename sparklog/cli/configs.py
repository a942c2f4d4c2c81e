"""`sparklog configs`: topic configs shown and changed, as kafka-configs does."""

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from sparklog.cli.command import Group
from sparklog.cli.exit_codes import EXIT_OK
from sparklog.cli.open_log import to_change, to_read
from sparklog.cli.output import console, print_json
from sparklog.cli.storage import Reach, reach_options
from sparklog.tools.configs import (
    ConfigEntry,
    changed_configs,
    describe_configs,
    parse_configs,
    split_configs,
)

_json = click.option("--json", "as_json", is_flag=True, help="One JSON document.")


@click.group(cls=Group)
def configs() -> None:
    """Topic configs: describe, alter (kafka-configs --entity-type topics)."""


@configs.command()
@click.argument("path")
@click.option("--entity-name", "--topic", "topic", help="A topic; all by default.")
@click.option("--all", "everything", is_flag=True, help="Defaults as well.")
@reach_options
@_json
def describe(path: str, topic: str | None, everything: bool, reach: Reach, as_json: bool) -> int:
    """Show configs, and where each comes from.

    DYNAMIC_TOPIC_CONFIG: it was set on the topic. DEFAULT_CONFIG: it was not.
    """
    with to_read(path, reach) as log:
        infos = log.topics().values() if topic is None else [log.topic(topic)]
        found = {info.name: describe_configs(info, everything=everything) for info in infos}
    if as_json:
        print_json({name: [e.to_dict() for e in entries] for name, entries in found.items()})
        return EXIT_OK
    for name, entries in found.items():
        click.echo(f"{'All' if everything else 'Dynamic'} configs for topic {name} are:")
        if entries:
            _print(entries)
    return EXIT_OK


def _print(entries: list[ConfigEntry]) -> None:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("config", "value", "source", "default", "valid"):
        table.add_column(name, no_wrap=name == "config", overflow="fold")
    for entry in entries:
        table.add_row(
            *(Text(t) for t in (entry.name, entry.value, entry.source, entry.default, entry.valid))
        )
    console().print(table)


@configs.command()
@click.argument("path")
@click.option("--entity-name", "--topic", "topic", required=True, help="The topic.")
@click.option(
    "--add-config", multiple=True, metavar="K1=V1,K2=[V2,V3]",
    help="Configs to set; may be given several times.",
)  # fmt: skip
@click.option("--delete-config", multiple=True, metavar="K1,K2", help="Configs to reset.")
@reach_options
@_json
def alter(
    path: str,
    topic: str,
    add_config: tuple[str, ...],
    delete_config: tuple[str, ...],
    reach: Reach,
    as_json: bool,
) -> int:
    """Set and reset configs of a topic, all of them or none."""
    added = parse_configs(pair for text in add_config for pair in split_configs(text))
    deleted = [name.strip() for text in delete_config for name in text.split(",") if name.strip()]
    if not added and not deleted:
        raise click.UsageError("nothing to alter: give --add-config or --delete-config")
    with to_change(path, topic, reach=reach) as log:
        log.alter_topic(topic, config=changed_configs(log.topic(topic), added, deleted))
        entries = describe_configs(log.topic(topic))
    if as_json:
        print_json({topic: [entry.to_dict() for entry in entries]})
    else:
        click.echo(f"Completed updating config for topic {topic}.")
    return EXIT_OK
