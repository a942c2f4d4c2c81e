"""`sparklog produce`: appends lines, JSON, CSV or Parquet to a topic."""

import contextlib
import os
import sys
import threading
from collections.abc import Sequence
from typing import Any, BinaryIO

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table

from sparklog.cli.command import stop_signal
from sparklog.cli.exit_codes import EXIT_OK
from sparklog.cli.kafka_tools import KafkaTool
from sparklog.cli.open_log import check_creation, is_log, to_read
from sparklog.cli.output import bytes_bar, console, print_json
from sparklog.cli.parsing import CODECS, as_text, parse_properties
from sparklog.cli.storage import StoreAccess, access_options
from sparklog.errors import InvalidRequestError, UnknownTopicError
from sparklog.format.compression import Codec
from sparklog.opening import open_log
from sparklog.pluralize import pluralize
from sparklog.storage.staging import Framing
from sparklog.tools.console.input_files import Stopped
from sparklog.tools.console.input_formats import FORMATS, Lines
from sparklog.tools.console.producing import Produced, Records
from sparklog.tools.console.producing import produce as write


@click.command(cls=KafkaTool)
@click.argument("path")
@click.argument("files", nargs=-1, type=click.Path())
@click.option("--topic", metavar="NAME", required=True, help="Append to this topic.")
@click.option(
    "--format", "form", type=click.Choice(FORMATS), default="lines", show_default=True,
    help="Select the input format. `lines` reads a value per line. `json` reads an object per "
    "line, in the form that `sparklog consume --json` prints. `csv` reads rows after a header "
    "line. The columns of `csv` and `parquet` are value, key, timestamp and partition, of "
    "`parquet` also headers.",
)  # fmt: skip
@click.option(
    "--property", "--reader-property", "properties", multiple=True, metavar="KEY=VALUE",
    help="Set a property of the format lines, as for kafka-console-producer: parse.key, "
    "parse.headers, ignore.error (true or false), key.separator, headers.delimiter, "
    "headers.separator, headers.key.separator, null.marker. Repeatable.",
)  # fmt: skip
@click.option(
    "--partition", type=int, metavar="N",
    help="Append all records to this partition. By default the key of a record selects its "
    "partition, with Kafka's hash function.",
)  # fmt: skip
@click.option(
    "--compression-type", "--compression-codec",
    type=CODECS,
    help="Compress record batches with this codec. If the topic's compression.type is not "
    "producer, that codec is used instead. The default is no compression.",
)  # fmt: skip
@click.option(
    "--create", type=click.IntRange(1), metavar="PARTITIONS",
    help="Create the topic with this many partitions if it does not exist, and the log if there is "
    "none. By default a missing topic is an error.",
)  # fmt: skip
@click.option(
    "--linger-ms", "--timeout", "linger_ms", type=click.IntRange(0), default=1000,
    show_default=True, metavar="MS",
    help="Commit when a pipe has provided no input for this many milliseconds. Applies to the "
    "formats lines and json.",
)  # fmt: skip
@click.option(
    "--writer",
    callback=as_text,
    metavar="NAME",
    help="Append all input in a single commit, as a micro-batch of this writer. If the command is "
    "repeated with the same --batch and input, no record is appended again. Requires --batch.",
)
@click.option(
    "--batch", type=click.IntRange(0), metavar="N",
    help="Set the number of the micro-batch. It must be higher than the writer's last number, "
    "unless an earlier call is repeated with the same input: then nothing is appended. Requires "
    "--writer.",
)  # fmt: skip
@access_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def produce(
    path: str,
    files: Sequence[str],
    topic: str,
    form: str,
    properties: Sequence[str],
    partition: int | None,
    compression_type: str | None,
    create: int | None,
    linger_ms: int,
    writer: str | None,
    batch: int | None,
    access: StoreAccess,
    as_json: bool,
) -> int:
    """Append records from files or standard input to a topic, like kafka-console-producer.

    Records are committed in parts of 64 MiB, and when a pipe pauses for --linger-ms. An invalid
    line stops the command with the line's number: the part with this line is not written, and
    earlier parts stay. Ctrl-C and SIGTERM end the input: the complete lines that were read before
    are committed, and the exit code is 0.

    With --writer and --batch all input is written in a single commit, exactly once: a signal
    discards the input, and a repeated call with the same input appends no records. Parquet from a
    pipe is stored in a temporary file first.
    """
    lines = Lines.parse(parse_properties(properties, "--property"))
    if properties and form != "lines":
        raise click.UsageError("--property requires --format lines")
    if (writer is None) != (batch is None):
        raise click.UsageError("--writer and --batch require each other")
    codec = None if compression_type is None else Codec.parse(compression_type)
    _check(path, topic, partition, create, access)
    with contextlib.ExitStack() as stack:
        inputs = [(name, stack.enter_context(_opened(name))) for name in files or ("-",)]
        seen = stack.enter_context(_bar(files, shown=not as_json))
        # A micro-batch is written atomically, so signals have their default action.
        stop = stack.enter_context(stop_signal()) if writer is None else threading.Event()
        try:
            records = Records(
                topic, inputs, form=form, lines=lines, partition=partition, seen=seen,
                linger_ms=linger_ms, stopped=stop.is_set,
            )  # fmt: skip
        except Stopped:
            # Before the log is opened for writing, which would create it or take it over.
            return _end(Produced(topic=topic, stopped=True), as_json=as_json)
        log = stack.enter_context(
            open_log(path, mode="rw", storage_options=access.storage, options=access.options)
        )
        if create is not None:
            log.create_topic(topic, create, if_not_exists=True)
        done = write(log, records, framing=Framing(codec=codec), writer=writer, batch=batch)
    return _end(done, as_json=as_json)


def _end(done: Produced, *, as_json: bool) -> int:
    if as_json:
        print_json(to_dict(done))
    else:
        _show(done)
    return EXIT_OK


def _check(
    path: str, topic: str, partition: int | None, create: int | None, access: StoreAccess
) -> None:
    """Raise InvalidRequestError before any input is read or anything is created."""
    known = None
    if create is not None:
        check_creation(path, topic, {})
        if is_log(path, access):
            with to_read(path, access) as log:
                known = log.topics().get(topic)
    else:
        with to_read(path, access, archives=False, cure="--create PARTITIONS makes one") as log:
            try:
                known = log.topic(topic)
            except UnknownTopicError as error:
                raise UnknownTopicError(f"{error}; --create PARTITIONS creates it") from None
    count = create if known is None else known.partitions
    assert count is not None
    if partition is not None and not 0 <= partition < count:
        raise InvalidRequestError(
            f"topic {topic} has no partition {partition}; its partitions are 0 to {count - 1}"
        )


def _opened(name: str) -> Any:
    if name == "-":
        return contextlib.nullcontext(sys.stdin.buffer)
    try:
        file: BinaryIO = open(name, "rb")  # noqa: SIM115 - the caller's stack closes it
    except OSError as error:
        raise click.BadParameter(f"{name}: {error.strerror}", param_hint="'FILES'") from None
    return file


@contextlib.contextmanager
def _bar(files: Sequence[str], *, shown: bool) -> Any:
    total = sum(os.path.getsize(name) for name in files if name != "-" and os.path.isfile(name))
    done = 0
    with bytes_bar("producing", shown=shown and bool(total)) as bar:

        def seen(size: int) -> None:
            nonlocal done
            done += size
            if bar is not None:
                bar(done, total)

        yield seen


def to_dict(done: Produced) -> dict[str, Any]:
    """Return the result as a JSON document."""
    return {
        "topic": done.topic,
        "records": done.records,
        "commits": done.commits,
        "replayed": done.replayed,
        "stopped": done.stopped,
        "offsets": {str(p): list(span) for p, span in sorted(done.offsets.items())},
    }


def _show(done: Produced) -> None:
    if done.offsets:
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        for name in ("topic", "partition", "first", "end"):
            table.add_column(name, justify="left" if name == "topic" else "right")
        for p, (first, end) in sorted(done.offsets.items()):
            table.add_row(done.topic, str(p), str(first), str(end))
        console().print(table)
    outcome = pluralize(done.records, "record")
    if done.replayed:
        outcome = "this micro-batch was committed before; no record was written"
    if done.stopped:
        outcome += "; stopped, an incomplete further record was discarded"
    click.echo(f"{done.topic}: {outcome}", err=True)
