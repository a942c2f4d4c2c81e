"""What a Kafka user's fingers type: Kafka's tools by their names, its flags for what is to be done.

`kafka-topics.sh --create --topic t --bootstrap-server localhost:9092` is here `sparklog topics
create PATH --topic t`. The first form works as well, with the log's path where the address was:

    sparklog topics --create --topic t --bootstrap-server PATH
    sparklog kafka-topics.sh --bootstrap-server PATH --create --topic t

What of Kafka's means nothing here is refused with a sentence that says why, or what does it.
Source: the options of Kafka 4.1's tools.
"""

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from sparklog.cli.command import Command, Group

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
"""bin/kafka-NAME.sh -> what does it."""

_SERVER: Final = (
    "a log needs no server; `sparklog serve PATH --kafka 9092` is one for Kafka clients"
)
_ONE_NODE: Final = (
    "a log is one node's, which `sparklog serve PATH --kafka 9092` is to Kafka's clients"
)
_BENCHMARKS: Final = "benchmarks of a log are run from a checkout: `make bench`"
UNSUPPORTED_TOOLS: Final[Mapping[str, str]] = {
    "acls": "users and their rights are kept by `sparklog kafka-users FILE`",
    "broker-api-versions": _SERVER + ", and answers Kafka's own kafka-broker-api-versions",
    "client-metrics": "an endpoint collects nothing from its clients; its own metrics: "
    "`sparklog serve PATH --kafka 9092 --metrics-port 9404`",
    "cluster": f"{_ONE_NODE}; its cluster id is in meta.properties once it is handed over "
    "(`sparklog handover PATH`)",
    "connect-mirror-maker": "a topic is copied by `sparklog import` from Kafka, and by "
    "`sparklog export` to it, offsets kept",
    "consumer-perf-test": _BENCHMARKS,
    "delegation-tokens": "users of an endpoint have passwords or certificates: "
    "`sparklog kafka-users FILE`",
    "e2e-latency": _BENCHMARKS,
    "features": "a log has its format's version alone; a newer one is refused by name",
    "groups": "`sparklog readers list PATH --type --state` lists groups; all are of one kind here",
    "metadata-quorum": f"there is no quorum: {_ONE_NODE}",
    "metadata-shell": "topics are in the log's ledger: `sparklog topics`, `sparklog commits`",
    "mirror-maker": "a topic is copied by `sparklog import` from Kafka, and by `sparklog export`",
    "producer-perf-test": _BENCHMARKS,
    "reassign-partitions": "a partition moves to another log dir by "
    "`sparklog log-dirs move PATH --topic NAME --partition N --to DIR`",
    "replica-verification": "there is one replica of a partition: `sparklog verify PATH` checks it",
    "run-class": "tools go by their own names: `sparklog kafka-get-offsets` (GetOffsetShell), "
    "`sparklog kafka-dump-log` (DumpLogSegments)",
    "server-start": _SERVER,
    "server-stop": _SERVER,
    "share-groups": "there are no share groups: `sparklog readers` has consumer groups",
    "console-share-consumer": "there are no share groups: "
    "`sparklog consume PATH --topic NAME --group GROUP`",
    "storage": "a log dir needs no formatting; `sparklog handover PATH` makes it a broker's",
    "streams-application-reset": "a query goes back by "
    "`sparklog checkpoint reset CHECKPOINT --to BATCH`",
    "streams-groups": "there are no streams groups: Spark's streaming queries process a log",
    "transactions": "Kafka clients have no transactions here; a micro-batch is one commit: "
    "`sparklog commits PATH`",
}
"""Tools of Kafka's that mean nothing here, and what does instead."""

_CONNECTION: Final = (
    "there is no connection to configure: how a store is reached says --storage-options"
)
_CONSUMER: Final = (
    "there is no consumer to configure; say it by --group, --isolation-level, --offset"
)
_PRODUCER: Final = "there is no producer to configure: what is committed is on disk, in order, once"
_REPLICAS: Final = "a partition has one replica, so none is behind; --unavailable-partitions shows"
UNSUPPORTED_FLAGS: Final[Mapping[str, str]] = {
    "--command-config": _CONNECTION,
    "--admin.config": _CONNECTION,
    "--bootstrap-controller": "there is no controller: give the log's PATH",
    "--zookeeper": "there is no ZooKeeper: give the log's PATH",
    "--timeout": "there is no server to wait for; --patience-ms says how long for a store",
    "--replica-assignment": "a partition has one replica, here; partitions go to the log dir that "
    "has fewest",
    "--under-replicated-partitions": _REPLICAS,
    "--under-min-isr-partitions": _REPLICAS,
    "--at-min-isr-partitions": _REPLICAS,
    "--partition-size-limit-per-response": "all partitions are shown at once",
    "--broker-list": "there are no brokers to access or to choose: give the log's PATH",
    "--include": "one topic at a time: --topic",
    "--whitelist": "one topic at a time: --topic",
    "--consumer-property": _CONSUMER,
    "--consumer.config": _CONSUMER,
    "--command-property": _CONSUMER,
    "--skip-message-on-error": "damage ends it: `sparklog verify PATH --repair` repairs what it "
    "can, restore the rest from a copy",
    "--enable-systest-events": "--json prints what a script needs",
    "--key-deserializer": "say it as --property key.deserializer=CLASS",
    "--value-deserializer": "say it as --property value.deserializer=CLASS",
    "--formatter-config": "give --formatter-property KEY=VALUE",
    "--producer-property": _PRODUCER,
    "--producer.config": _PRODUCER,
    "--reader-config": "give --reader-property KEY=VALUE",
    "--line-reader": "give --format",
    "--sync": "each commit is on disk before the next one begins; --linger-ms says how large it is",
    "--request-required-acks": _PRODUCER,
    "--request-timeout-ms": _PRODUCER,
    "--message-send-max-retries": _PRODUCER,
    "--retry-backoff-ms": _PRODUCER,
    "--max-block-ms": _PRODUCER,
    "--max-memory-bytes": "a commit holds 64 MiB at most",
    "--max-partition-memory-bytes": "a batch is as large as the topic's max.message.bytes allows",
    "--batch-size": "a batch is as large as the topic's max.message.bytes allows",
    "--metadata-expiry-ms": _PRODUCER,
    "--socket-buffer-size": _PRODUCER,
    "--validate-regex": "what no regular expression is, is said where it is given",
    "--entity-default": "defaults of all topics are options of who opens the log: "
    "sparklog.open(..., options={...}), `sparklog serve --option`",
    "--force": "nothing asks for confirmation",
}
"""Flags of Kafka's that no command here has, and why."""


def tool_command(name: str) -> tuple[str, ...] | None:
    """Return the command for the name of a Kafka tool, and what precedes its arguments.

    Returns: None if no tool has that name.
    Raises: click.UsageError for a tool that means nothing here.
    """
    plain = name.removeprefix("kafka-").removesuffix(".sh")
    if plain in UNSUPPORTED_TOOLS:
        raise click.UsageError(f"there is no {name} here: {UNSUPPORTED_TOOLS[plain]}")
    return TOOLS.get(plain)


class KafkaTool(Command):
    """A command that is one of Kafka's tools: its PATH may be given as --bootstrap-server."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse arguments. Raises: click.UsageError."""
        try:
            return super().parse_args(ctx, path_first(args))
        except click.NoSuchOption as error:
            why = UNSUPPORTED_FLAGS.get(error.option_name)
            if why is None:
                raise
            raise click.UsageError(f"{error.option_name} has no meaning here: {why}", ctx) from None


def path_first(args: Sequence[str]) -> list[str]:
    """Return arguments with the value of --bootstrap-server in front, where a PATH stands.

    Raises: click.UsageError: it is given twice, or without a value.
    """
    name, paths, rest = "--bootstrap-server", [], []
    waiting = iter(args)
    for word in waiting:
        if word == "--":
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
        raise click.UsageError(f"{name} is given twice")
    return [*paths, *rest]


class KafkaToolGroup(Group):
    """A tool of Kafka's: what it is to do is a command here, and a flag there.

    `actions`: {Kafka's flag: the command}. `default`: the command where neither is given.
    """

    command_class = KafkaTool

    def __init__(
        self, *, actions: Mapping[str, str], default: str | None = None, **given: Any
    ) -> None:
        super().__init__(**given)
        self._actions, self._default = actions, default

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse arguments. Raises: click.UsageError."""
        if args and args[0] not in {*self.commands, *ctx.help_option_names}:
            args = self._commanded(ctx, args)
        return super().parse_args(ctx, args)

    def _commanded(self, ctx: click.Context, args: Sequence[str]) -> list[str]:
        """Return the command's name and its arguments, of arguments that are Kafka's."""
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
        """Tell whether an argument says what is to be done."""
        return args[at] in self._actions and "--" not in args[:at]


def _one_replica(context: click.Context, option: click.Parameter, given: int | None) -> int | None:
    if given in (None, 1):
        return given
    raise click.BadParameter(
        f"{given}: want 1. A log keeps one copy of each record; more of them are its disk's or "
        "its bucket's to keep",
        ctx=context, param=option,
    )  # fmt: skip


replication_factor = click.option(
    "--replication-factor", type=int, callback=_one_replica, expose_value=False,
    help="Accept 1, the number of replicas of every partition.",
)  # fmt: skip
