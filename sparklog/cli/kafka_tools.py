"""Names and flags of Kafka's tools, accepted as commands.

`kafka-topics.sh --create --topic t --bootstrap-server localhost:9092` corresponds to `sparklog
topics create PATH --topic t`. The first form works as well, with the log's path in place of the
address:

    sparklog topics --create --topic t --bootstrap-server PATH
    sparklog kafka-topics.sh --bootstrap-server PATH --create --topic t

Tools and flags of Kafka without a meaning for a log are refused with a message that gives the
reason or an alternative. Source: the options of Kafka 4.1's tools.
"""

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from sparklog.cli.command import Command, Group, refuse_dropped

TOOLS: Final[Mapping[str, tuple[str, ...]]] = {
    "console-consumer": ("consume", "--follow"),
    "console-producer": ("produce",),
    "consumer-groups": ("readers",),
    **{
        name: (name,)
        for name in (
            "configs", "delete-records", "dump-log", "get-offsets", "log-dirs",
            "topics",
        )
    },
}  # fmt: skip
"""{NAME of bin/kafka-NAME.sh: the corresponding command}"""

_SERVER: Final = (
    "a log needs no server; `sparklog serve PATH --kafka 9092` runs one for Kafka clients"
)
_ONE_NODE: Final = (
    "a log has a single node; `sparklog serve PATH --kafka 9092` runs it for Kafka clients"
)
_BENCHMARKS: Final = "a checkout of sparklog has benchmarks: `make bench`"
UNSUPPORTED_TOOLS: Final[Mapping[str, str]] = {
    "acls": "`sparklog kafka-users FILE` manages users and their rights",
    "broker-api-versions": _SERVER + ", which also answers Kafka's kafka-broker-api-versions",
    "client-metrics": "an endpoint collects no metrics from its clients; its own metrics: "
    "`sparklog serve PATH --kafka 9092 --metrics-port 9404`",
    "cluster": f"{_ONE_NODE}; its cluster id is in meta.properties once it is handed over "
    "(`sparklog handover PATH`)",
    "connect-mirror-maker": "`sparklog import` copies a topic from Kafka, `sparklog export` to "
    "Kafka; offsets are preserved",
    "consumer-perf-test": _BENCHMARKS,
    "delegation-tokens": "users of an endpoint have passwords or certificates: "
    "`sparklog kafka-users FILE`",
    "e2e-latency": _BENCHMARKS,
    "features": "a log only has a format version; a newer one is refused with its number",
    "groups": "`sparklog readers list PATH --type --state` lists groups of all types",
    "metadata-quorum": f"a log has no quorum: {_ONE_NODE}",
    "metadata-shell": "the log's ledger records topics: `sparklog topics`, `sparklog commits`",
    "mirror-maker": "`sparklog import` copies a topic from Kafka, `sparklog export` to Kafka",
    "producer-perf-test": _BENCHMARKS,
    "reassign-partitions": "this moves a partition to another log dir: "
    "`sparklog log-dirs move PATH --topic NAME --partition N --to DIR`",
    "replica-verification": "a partition has one replica, which `sparklog verify PATH` checks",
    "run-class": "tools are called by name: `sparklog kafka-get-offsets` (GetOffsetShell), "
    "`sparklog kafka-dump-log` (DumpLogSegments)",
    "server-start": _SERVER,
    "server-stop": _SERVER,
    "share-groups": "there are no share groups: `sparklog readers` shows consumer groups",
    "console-share-consumer": "there are no share groups: "
    "`sparklog consume PATH --topic NAME --group GROUP`",
    "storage": "a log dir needs no formatting; `sparklog handover PATH` prepares it for a broker",
    "streams-application-reset": "this resets a query: "
    "`sparklog checkpoint reset CHECKPOINT --to BATCH`",
    "streams-groups": "there are no streams groups; Spark's streaming queries process a log",
    "transactions": "transactions are not supported; a micro-batch is one commit: "
    "`sparklog commits PATH`",
}
"""Kafka tools without a meaning for a log, and an alternative."""

_CONNECTION: Final = (
    "there is no connection to configure; --storage-options configures a store"
)
_CONSUMER: Final = (
    "there is no consumer to configure; use --group, --isolation-level and --offset"
)
_PRODUCER: Final = "there is no producer to configure: commits are durable, in order, exactly once"
_REPLICAS: Final = (
    "a partition has one replica, which is never behind; --unavailable-partitions shows "
    "offline partitions"
)
UNSUPPORTED_FLAGS: Final[Mapping[str, str]] = {
    "--command-config": _CONNECTION,
    "--admin.config": _CONNECTION,
    "--bootstrap-controller": "a log has no controller: pass its PATH",
    "--zookeeper": "a log has no ZooKeeper: pass its PATH",
    "--timeout": "there is no server to wait for; --patience-ms limits the wait for a store",
    "--replica-assignment": "a partition has one replica, in the log dir with the fewest "
    "partitions",
    "--under-replicated-partitions": _REPLICAS,
    "--under-min-isr-partitions": _REPLICAS,
    "--at-min-isr-partitions": _REPLICAS,
    "--partition-size-limit-per-response": "all partitions are shown at once",
    "--broker-list": "a log has no brokers to choose: pass its PATH",
    "--include": "the command reads a single topic, named by --topic",
    "--whitelist": "the command reads a single topic, named by --topic",
    "--consumer-property": _CONSUMER,
    "--consumer.config": _CONSUMER,
    "--command-property": _CONSUMER,
    "--skip-message-on-error": "damage stops the command: run `sparklog verify PATH --repair`, and "
    "restore the rest from a copy",
    "--enable-systest-events": "--json prints output for scripts",
    "--key-deserializer": "use --property key.deserializer=CLASS",
    "--value-deserializer": "use --property value.deserializer=CLASS",
    "--formatter-config": "use --formatter-property KEY=VALUE",
    "--producer-property": _PRODUCER,
    "--producer.config": _PRODUCER,
    "--reader-config": "use --reader-property KEY=VALUE",
    "--line-reader": "use --format",
    "--sync": "each commit is durable before the next one begins; --linger-ms bounds its size",
    "--request-required-acks": _PRODUCER,
    "--request-timeout-ms": _PRODUCER,
    "--message-send-max-retries": _PRODUCER,
    "--retry-backoff-ms": _PRODUCER,
    "--max-block-ms": _PRODUCER,
    "--max-memory-bytes": "a commit has at most 64 MiB",
    "--max-partition-memory-bytes": "a batch is as large as the topic's max.message.bytes allows",
    "--batch-size": "a batch is as large as the topic's max.message.bytes allows",
    "--metadata-expiry-ms": _PRODUCER,
    "--socket-buffer-size": _PRODUCER,
    "--validate-regex": "regular expressions are validated by the commands that take them",
    "--entity-default": "defaults of all topics are options of the opening process: "
    "sparklog.open(..., options={...}), `sparklog serve --option`",
    "--force": "no command asks for confirmation",
}
"""Flags of Kafka's tools that no command has, and the reason."""


def tool_command(name: str) -> tuple[str, ...] | None:
    """Return the command that corresponds to a Kafka tool, or None for an unknown tool.

    The result is the name of the command, and arguments to insert before the user's arguments.

    Raises:
        click.UsageError: The tool has no meaning for a log.
    """
    plain = name.removeprefix("kafka-").removesuffix(".sh")
    if plain in UNSUPPORTED_TOOLS:
        raise click.UsageError(f"there is no {name} here: {UNSUPPORTED_TOOLS[plain]}")
    return TOOLS.get(plain)


class KafkaTool(Command):
    """A command that corresponds to a Kafka tool: PATH may be given as --bootstrap-server."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse arguments, including Kafka's flags.

        Raises:
            click.UsageError: An argument is invalid, or is a flag of Kafka without a meaning for a
                log.
        """
        try:
            return super().parse_args(ctx, path_first(args))
        except click.NoSuchOption as error:
            why = UNSUPPORTED_FLAGS.get(error.option_name)
            if why is None:
                raise
            raise click.UsageError(f"{error.option_name} has no meaning here: {why}", ctx) from None


def path_first(args: Sequence[str]) -> list[str]:
    """Return the arguments with the value of --bootstrap-server moved to the front, as PATH.

    Raises:
        click.UsageError: The flag is passed twice, or without a value.
    """
    name, paths, rest = "--bootstrap-server", [], []
    waiting = iter(args)
    for word in waiting:
        if word == "--":  # everything after it is an argument, even if it looks like the flag
            rest += [word, *waiting]
        elif word == name:
            value = next(waiting, None)
            if value is None:
                raise click.UsageError(f"Option '{name}' requires an argument: the log's PATH.")
            paths.append(value)
        elif word.startswith(f"{name}="):
            paths.append(word.partition("=")[2])
        else:
            rest.append(word)
    if len(paths) > 1:
        raise click.UsageError(f"{name} is passed twice")
    return [*paths, *rest]


class KafkaToolGroup(Group):
    """A group of commands that also accepts the action flags of a Kafka tool, such as --create.

    Args:
        actions: {Kafka's flag: the command}.
        default: The command for arguments without a flag and without a command.
    """

    command_class = KafkaTool

    def __init__(
        self, *, actions: Mapping[str, str], default: str | None = None, **given: Any
    ) -> None:
        super().__init__(**given)
        self._actions, self._default = actions, default

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse arguments, including Kafka's action flags.

        Raises:
            click.UsageError: An argument is invalid, or there is not exactly one action.
        """
        if args and args[0] not in {*self.commands, *ctx.help_option_names}:
            refuse_dropped(ctx, args[0])
            args = self._commanded(ctx, args)
        return super().parse_args(ctx, args)

    def _commanded(self, ctx: click.Context, args: Sequence[str]) -> list[str]:
        """Convert Kafka's arguments to the name of a command and the command's arguments."""
        found = [at for at in range(len(args)) if self.is_action(args, at)]
        if len(found) > 1 or (not found and self._default is None):
            if not found and (near := difflib.get_close_matches(args[0], self.commands, n=1)):
                raise click.UsageError(f"No such command {args[0]!r}. Did you mean {near[0]}?", ctx)
            raise click.UsageError(
                f"Command must include exactly one action: {', '.join(self._actions)}", ctx
            )
        if not found:
            assert self._default is not None
            return [self._default, *args]
        return [self._actions[args[found[0]]], *args[: found[0]], *args[found[0] + 1 :]]

    def is_action(self, args: Sequence[str], at: int) -> bool:
        """Return True if the argument at index `at` is an action flag."""
        return args[at] in self._actions and "--" not in args[:at]


def _one_replica(context: click.Context, option: click.Parameter, given: int | None) -> int | None:
    if given in (None, 1):
        return given
    raise click.BadParameter(
        f"{given} must be 1. A log stores a single copy of each record; redundancy is the task of "
        "its disk or bucket",
        ctx=context, param=option,
    )  # fmt: skip


replication_factor = click.option(
    "--replication-factor", type=int, metavar="1", callback=_one_replica, expose_value=False,
    help="Accept 1, the number of replicas of every partition. Provided for scripts that use "
    "kafka-topics.",
)  # fmt: skip
