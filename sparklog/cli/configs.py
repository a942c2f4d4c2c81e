"""`sparklog configs`: describes and alters topic configs, like kafka-configs."""

from typing import IO, Final

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from sparklog.cli.exit_codes import EXIT_OK
from sparklog.cli.kafka_tools import KafkaToolGroup
from sparklog.cli.open_log import to_change, to_read
from sparklog.cli.output import console, print_json
from sparklog.cli.parsing import read_text
from sparklog.cli.storage import StoreAccess, access_options
from sparklog.tools.configs import (
    ConfigEntry,
    changed_configs,
    describe_configs,
    parse_config_file,
    parse_configs,
    split_configs,
)

_OTHER_ENTITIES: Final = {
    "users": "`sparklog kafka-users FILE` manages users, their passwords and rights",
    "clients": "clients have no quotas, only common limits: `sparklog serve --kafka-option`",
    "ips": "connection limits are options of the endpoint: `sparklog serve --kafka-option`",
    "brokers": "options of a log are set where it is opened or served: `sparklog serve --option`",
    "broker-loggers": "-v and -vv before a command's name set the log level",
    "client-metrics": "an endpoint collects no metrics from its clients",
    "groups": "session limits are options of the endpoint: `sparklog serve --kafka-option`",
}  # fmt: skip

_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


def _topics_only(
    context: click.Context, option: click.Parameter, given: tuple[str, ...]
) -> tuple[str, ...]:
    for kind in given:
        if kind not in ("topics", "topic"):
            why = _OTHER_ENTITIES.get(kind, "this entity type does not exist")
            raise click.BadParameter(
                f"{kind} is not supported, only topics are; {why}", ctx=context, param=option
            )
    return given


_entity_type = click.option(
    "--entity-type", multiple=True, callback=_topics_only, expose_value=False, metavar="TYPE",
    help="Select the kind of entity, as in kafka-configs. The only kind is topics, the default.",
)  # fmt: skip


@click.group(cls=KafkaToolGroup, actions={"--describe": "describe", "--alter": "alter"})
def configs() -> None:
    """Describe and alter the configs of topics, like kafka-configs --entity-type topics."""


@configs.command()
@click.argument("path")
@_entity_type
@click.option(
    "--entity-name", "--topic", "topic", metavar="NAME",
    help="Describe only this topic. The default is all topics.",
)  # fmt: skip
@click.option("--all", "everything", is_flag=True, help="Show configs with default values as well.")
@access_options
@_json
def describe(
    path: str, topic: str | None, everything: bool, access: StoreAccess, as_json: bool
) -> int:
    """Show the configs that were set on topics, with --all also the defaults.

    For each config the table shows its value, source, default and valid values. The source is
    DYNAMIC_TOPIC_CONFIG if the config was set on the topic, and DEFAULT_CONFIG otherwise.
    """
    with to_read(path, access) as log:
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
@_entity_type
@click.option(
    "--entity-name", "--topic", "topic", metavar="NAME", required=True, help="Alter this topic."
)
@click.option(
    "--add-config", multiple=True, metavar="K1=V1,K2=[V2,V3]",
    help="Set these configs. Enclose a value that contains commas in brackets. Excludes "
    "--add-config-file. Repeatable.",
)  # fmt: skip
@click.option(
    "--add-config-file", type=click.File("r", encoding="utf-8"), metavar="FILE",
    help="Set the configs in this properties file, with key=value on each line.",
)  # fmt: skip
@click.option(
    "--delete-config", multiple=True, metavar="K1,K2",
    help="Reset these configs to their defaults. Repeatable.",
)  # fmt: skip
@access_options
@_json
def alter(
    path: str,
    topic: str,
    add_config: tuple[str, ...],
    add_config_file: IO[str] | None,
    delete_config: tuple[str, ...],
    access: StoreAccess,
    as_json: bool,
) -> int:
    """Set configs of a topic, or reset them to their defaults.

    All changes of a call are made together; if a config is invalid, none is made.
    """
    if add_config and add_config_file is not None:
        raise click.UsageError("--add-config and --add-config-file exclude each other")
    added = (
        parse_configs(pair for text in add_config for pair in split_configs(text))
        if add_config_file is None
        else parse_config_file(read_text(add_config_file, "--add-config-file"))
    )
    deleted = [name.strip() for text in delete_config for name in text.split(",") if name.strip()]
    if not added and not deleted:
        raise click.UsageError("no change is requested: pass --add-config or --delete-config")
    with to_change(path, topic, access=access) as log:
        log.alter_topic(topic, config=changed_configs(log.topic(topic), added, deleted))
        entries = describe_configs(log.topic(topic))
    if as_json:
        print_json({topic: [entry.to_dict() for entry in entries]})
    else:
        click.echo(f"Completed updating config for topic {topic}.")
    return EXIT_OK
