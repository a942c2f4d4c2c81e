"""`sparklog import` and `sparklog export`: from Kafka, to Kafka, to a log dir, to a store."""

from collections.abc import Mapping, Sequence
from typing import TypedDict, Unpack

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table

from sparklog.cli.command import Command, stop_signal
from sparklog.cli.exit_codes import EXIT_OK, EXIT_STOPPED
from sparklog.cli.fork import print_made
from sparklog.cli.open_log import check_creation, to_read
from sparklog.cli.output import bytes_bar, console, count_bar, print_json
from sparklog.cli.parsing import CODECS, parse_properties, parse_when
from sparklog.cli.storage import StoreAccess, access_options
from sparklog.errors import InvalidRequestError
from sparklog.format.compression import Codec
from sparklog.log.arrow_reads import ISOLATION
from sparklog.log.log import Log, view_of
from sparklog.log.positions import Position
from sparklog.opening import open_log, url_of
from sparklog.pluralize import pluralize
from sparklog.progress import Progress
from sparklog.storage.staging import Framing
from sparklog.tiered.reading.options import RemoteOptions
from sparklog.tools.moving.export_kafka import export_kafka
from sparklog.tools.moving.export_log import export_log
from sparklog.tools.moving.exporting import Exported, TopicRange
from sparklog.tools.moving.import_kafka import Imported, KafkaSource, import_topic
from sparklog.tools.moving.kafka_client import read_config
from sparklog.tools.moving.to_log_dir import move_to_log_dir
from sparklog.tools.moving.to_store import move_to_store

_isolation = click.option(
    "--isolation-level", type=click.Choice(ISOLATION), default="read_committed", show_default=True,
    help="Set the isolation level. `read_committed` leaves out the records of aborted "
    "transactions, and stops before the first open transaction.",
)  # fmt: skip
_config = click.option(
    "--command-config", metavar="FILE",
    help="Read settings of the Kafka client (librdkafka) from this file, key=value per line, such "
    "as security.protocol=SSL.",
)  # fmt: skip
_as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


class _Target(TypedDict):
    """The target of an export (`to` or `to_kafka`), with the options of the target."""

    to: str | None
    to_kafka: str | None
    kafka_topic: str | None
    create: bool
    command_config: str | None
    compression_type: str | None
    isolation_level: str


def _no_table(_: click.Context, __: click.Parameter, path: str | None) -> None:
    """Refuse the targets of earlier versions: directories of Parquet files, Delta tables."""
    if path is not None:
        raise click.UsageError(
            f"exports no longer write tables ({path}): read the topic with Spark "
            '(spark.read.format("sparklog")) or with Log.read, and write the table with Spark, '
            "pyarrow or Polars, as docs/tools.md shows"
        )


def _no_table_file(ctx: click.Context, param: click.Parameter, path: str | None) -> str | None:
    """Refuse a Parquet file, which earlier versions wrote."""
    _no_table(ctx, param, path if path is not None and path.endswith(".parquet") else None)
    return path


@click.command("import", cls=Command)
@click.argument("path")
@click.option(
    "--topic", metavar="NAME", required=True,
    help="Import into this topic of the log. The command creates a topic that does not exist.",
)  # fmt: skip
@click.option(
    "--bootstrap-server", required=True, metavar="HOST:PORT",
    help="Connect to the Kafka cluster through this broker. Several are joined by commas.",
)  # fmt: skip
@click.option(
    "--kafka-topic", metavar="NAME",
    help="Import the topic with this name in Kafka. The default is the name of --topic.",
)  # fmt: skip
@_config
@click.option(
    "--config", "configs", multiple=True, metavar="KEY=VALUE",
    help="Set a config of the new topic. Other configs are copied from the topic in Kafka. "
    "Repeatable.",
)  # fmt: skip
@click.option(
    "--compression-type", type=CODECS,
    help="Compress record batches with this codec. A compression.type other than producer of the "
    "log's topic takes precedence. The default is no compression.",
)  # fmt: skip
@_isolation
@click.option(
    "--fail-on-data-loss/--no-fail-on-data-loss", default=True, show_default=True,
    help="Fail if Kafka deleted records before they were copied; with --no-fail-on-data-loss skip "
    "them, which leaves a gap in the offsets.",
)  # fmt: skip
@access_options
@_as_json
def import_(
    path: str,
    topic: str,
    bootstrap_server: str,
    kafka_topic: str | None,
    command_config: str | None,
    configs: Sequence[str],
    compression_type: str | None,
    isolation_level: str,
    fail_on_data_loss: bool,
    access: StoreAccess,
    as_json: bool,
) -> int:
    """Copy a topic of a running Kafka cluster into a log, with the same offsets and timestamps.

    Run the command again to continue an interrupted import, or to copy the records that were added
    since. No record is copied twice. Offsets of compacted records and transaction markers stay
    unused, as in Kafka. The exit code is 130 if the import was stopped by Ctrl-C or SIGTERM.
    """
    config = {} if command_config is None else read_config(command_config)
    kafka = KafkaSource(bootstrap_server, kafka_topic or topic, config, isolation_level)
    topic_config = parse_properties(configs, "--config")
    check_creation(path, topic, topic_config)
    kafka.check()
    bar = count_bar("importing", shown=not as_json)
    to_log = open_log(path, mode="rw", storage_options=access.storage, options=access.options)
    with stop_signal() as stop, to_log as log, bar as progress:
        done = import_topic(
            log, topic, kafka, topic_config=topic_config, framing=_framing(compression_type),
            fail_on_data_loss=fail_on_data_loss, progress=progress, stopped=stop.is_set,
        )  # fmt: skip
    if as_json:
        print_json(
            {
                "topic": done.topic, "kafka_topic": done.kafka_topic, "records": done.records,
                "commits": done.commits, "stopped": done.stopped,
                "offsets": _spans(done.offsets), "took_ms": done.took_ms,
            }
        )  # fmt: skip
        return _exit_code(done)
    _show(done.topic, done.offsets)
    _say(done)
    return _exit_code(done)


@click.command(cls=Command)
@click.argument("path")
@click.option(
    "--topic", metavar="NAME", help="Export this topic. Either this option or --all is required."
)
@click.option(
    "--all", "whole", is_flag=True,
    help="Move the whole log from log dirs to a bucket or back, with topic ids, leader epochs, "
    "writers and groups. The old log is not deleted. Requires --to. Excludes --topic, --to-kafka, "
    "--compression-type, and the options that select a range of records.",
)  # fmt: skip
@click.option(
    "--to", metavar="PATH", callback=_no_table_file,
    help="Copy to the log at this path or URL, with the same offsets. A log or topic that does not "
    "exist is created.",
)  # fmt: skip
@click.option(
    "--to-parquet", "--to-delta", "to_table", metavar="PATH", callback=_no_table,
    expose_value=False, hidden=True,
)  # fmt: skip
@click.option(
    "--to-kafka", metavar="HOST:PORT",
    help="Copy to the running Kafka cluster with this bootstrap server, in transactions. Excludes "
    "--to.",
)  # fmt: skip
@click.option(
    "--kafka-topic", metavar="NAME",
    help="Copy to the topic with this name in Kafka. Requires --to-kafka. The default is the name "
    "of --topic.",
)  # fmt: skip
@click.option(
    "--create", is_flag=True,
    help="Create the topic in Kafka if it does not exist, with the topic's retention.ms. Requires "
    "--to-kafka.",
)  # fmt: skip
@_config
@click.option(
    "--from-offset", "from_offsets", multiple=True, metavar="[PARTITION=]OFFSET",
    help="Begin at this offset of a partition. PARTITION= can be omitted if there is one "
    "partition. The default is the log start. Repeatable.",
)  # fmt: skip
@click.option("--to-offset", "to_offsets", multiple=True, metavar="[PARTITION=]OFFSET",
              help="End before this offset of a partition. The default is the end. "
              "Repeatable.")  # fmt: skip
@click.option(
    "--from-time", metavar="TIME",
    help="Begin at the first record at or after this time, in ms since the epoch or in ISO form "
    "(2013-07-03T14:00Z, UTC unless it has a zone). Excludes --from-offset.",
)  # fmt: skip
@click.option(
    "--to-time", metavar="TIME",
    help="End before the first record at or after this time, in the forms of --from-time. Excludes "
    "--to-offset.",
)  # fmt: skip
@click.option(
    "--compression-type", type=CODECS,
    help="Compress record batches with this codec. A compression.type other than producer of the "
    "target topic takes precedence. The default is the codec of each batch with --to, and no "
    "compression with --to-kafka.",
)  # fmt: skip
@_isolation
@access_options
@_as_json
def export(
    path: str,
    topic: str | None,
    whole: bool,
    from_offsets: Sequence[str],
    to_offsets: Sequence[str],
    from_time: str | None,
    to_time: str | None,
    access: StoreAccess,
    as_json: bool,
    **target: Unpack[_Target],
) -> int:
    """Copy a topic, or a range of its records, to another log or to Kafka; or move a whole log.

    Exactly one of --to and --to-kafka is required. Run the command again to continue an interrupted
    export, or to copy the records that were added since. No record is copied twice.

    Record batches are copied to another log unchanged, with codec and producer ids. With
    --compression-type they are compressed again.

    With --all the whole log moves from log dirs to an empty place in a bucket, or from a bucket to
    a new log dir. The checkpoints of its queries remain valid with the moved log. Stop its writers
    first, because later records are not copied. The old log stays unchanged: do not write to it
    any more.
    """
    if whole:
        given = (topic, from_offsets, to_offsets, from_time, to_time)
        _check_alone(target, any(one not in (None, ()) for one in given))
        return _move(path, target["to"] or "", access, as_json=as_json)
    if topic is None:
        raise click.UsageError("pass --topic, or --all to export all topics")
    if (target["to"] is None) == (target["to_kafka"] is None):
        raise click.UsageError("pass either --to or --to-kafka")
    with to_read(path, access) as log:
        start = _position(log, topic, from_offsets, from_time, "from", "earliest")
        end = _position(log, topic, to_offsets, to_time, "to", "latest")
        records = TopicRange(log, topic, start, end, target["isolation_level"])
        with count_bar("exporting", shown=not as_json) as progress:
            done = _export(records, target, access.storage, progress)
    if as_json:
        print_json(
            {"topic": done.topic, "to": done.to, "records": done.records,
             "stopped": done.stopped, "offsets": _spans(done.offsets), "took_ms": done.took_ms}
        )  # fmt: skip
        return _exit_code(done)
    _show(done.topic, done.offsets)
    _say(done, f" to {done.to}")
    return _exit_code(done)


def _check_alone(target: "_Target", is_range: bool) -> None:
    changed = target["compression_type"] or target["kafka_topic"] or target["create"]
    to_kafka = target["to_kafka"] or target["command_config"]
    if target["to"] is None or to_kafka or is_range or changed:
        raise click.UsageError("--all exports the whole log unchanged: use only --to with it")


def _move(path: str, to: str, access: StoreAccess, *, as_json: bool) -> int:
    """Move a log from log dirs to a bucket, or from a bucket to a log dir."""
    options = RemoteOptions.parse(access.options)[0]
    into_store, home = url_of(to, mode="rw") is not None, url_of(path)
    if into_store == (home is not None):
        raise InvalidRequestError(
            f"{path} and {to} are the same kind of home: --all copies from log dirs to a bucket, "
            "or back; use `sparklog fork` for a copy in the same kind of home",
            path=path,
        )
    move = move_to_store if home is None else move_to_log_dir
    with bytes_bar("moving", shown=not as_json) as progress:
        made = move(
            path if home is None else home, to, storage_options=access.storage, options=options,
            progress=progress,
        )  # fmt: skip
    print_made(made, as_json=as_json)
    return EXIT_OK


def _export(
    records: TopicRange,
    target: "_Target",
    storage: Mapping[str, object],
    progress: Progress | None,
) -> Exported:
    codec = target["compression_type"]
    if target["to_kafka"] is None and (target["kafka_topic"] or target["command_config"]):
        raise click.UsageError("--kafka-topic and --command-config require --to-kafka")
    if target["to_kafka"] is not None:
        config = {} if target["command_config"] is None else read_config(target["command_config"])
        config |= {} if codec is None else {"compression.type": codec}
        with stop_signal() as stop:
            return export_kafka(
                records, target["to_kafka"], kafka_topic=target["kafka_topic"], config=config,
                create=target["create"], progress=progress, stopped=stop.is_set,
            )  # fmt: skip
    framing = None if codec is None else _framing(codec)
    return export_log(
        records, target["to"] or "", framing=framing, storage_options=storage, progress=progress
    )


def _framing(codec: str | None) -> Framing:
    return Framing(codec=None if codec is None else Codec.parse(codec))


def _position(
    log: Log, topic: str, offsets: Sequence[str], time: str | None, side: str, default: str
) -> Position:
    if offsets and time is not None:
        raise click.UsageError(f"--{side}-offset and --{side}-time exclude each other")
    if time is not None:
        return parse_when(time, f"--{side}-time")
    if not offsets:
        return default
    found: dict[int, int] = {}
    for text in offsets:
        partition, equals, offset = text.rpartition("=")
        if not (offset.isdigit() and (partition.isdigit() or not equals)):
            raise click.BadParameter(f"{text!r} must have the form OFFSET or PARTITION=OFFSET",
                                     param_hint=f"'--{side}-offset'")  # fmt: skip
        numbers = [int(partition)] if equals else view_of(log).partitions(topic)
        if len(numbers) != 1:
            raise click.UsageError(
                f"--{side}-offset requires PARTITION=OFFSET, because topic {topic} has several "
                "partitions"
            )
        found[numbers[0]] = int(offset)
    return found


def _spans(offsets: dict[int, tuple[int, int]]) -> dict[str, list[int]]:
    return {str(p): list(span) for p, span in sorted(offsets.items())}


def _show(topic: str, offsets: dict[int, tuple[int, int]]) -> None:
    if not offsets:
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("topic", "partition", "first", "end"):
        table.add_column(name, justify="left" if name == "topic" else "right")
    for p, (first, end) in sorted(offsets.items()):
        table.add_row(topic, str(p), str(first), str(end))
    console().print(table)


def _say(done: Imported | Exported, where: str = "") -> None:
    took = f"{pluralize(done.records, 'record')} in {done.took_ms / 1000:.1f} s"
    ended = "; stopped, run the command again to continue" if done.stopped else ""
    click.echo(f"{took if done.offsets else 'nothing new'}{where}{ended}", err=True)


def _exit_code(done: Imported | Exported) -> int:
    return EXIT_STOPPED if done.stopped else EXIT_OK
