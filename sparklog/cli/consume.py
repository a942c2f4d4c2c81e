"""`sparklog consume`: prints the records of a topic."""

import contextlib
import os
import select
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

import click

from sparklog.cli.command import drop_output, stop_signal
from sparklog.cli.exit_codes import EXIT_OK
from sparklog.cli.kafka_tools import KafkaTool
from sparklog.cli.open_log import to_read
from sparklog.cli.parsing import parse_properties, parse_when
from sparklog.cli.storage import StoreAccess, access_options
from sparklog.cli.terminal import visible_bytes
from sparklog.errors import StorageUnavailableError
from sparklog.log.arrow_reads import ISOLATION
from sparklog.log.log import Log, view_of
from sparklog.log.positions import Position
from sparklog.log.timeline import TIMELINES
from sparklog.pluralize import pluralize
from sparklog.tools.console.consuming import ConsumeRequest, Match
from sparklog.tools.console.consuming import consume as read
from sparklog.tools.console.formatting import FORMATS, Layout, formatter

_FORMATTERS: Final = {"org.apache.kafka.tools.consumer.DefaultMessageFormatter": "text"}
_OFFSETS: Final = "a number, earliest, latest, or an ISO time"


def _formatter(context: click.Context, option: click.Parameter, given: str) -> str:
    name = _FORMATTERS.get(given, given)
    if name not in FORMATS:
        wanted = f"{', '.join(FORMATS)}, or Kafka's class {', '.join(_FORMATTERS)}"
        raise click.BadParameter(f"{given} must be {wanted}", ctx=context, param=option)
    return name


@click.command(cls=KafkaTool)
@click.argument("path")
@click.option("--topic", metavar="NAME", required=True, help="Print the records of this topic.")
@click.option(
    "--partition", "partitions", type=int, multiple=True, metavar="N",
    help="Read only this partition. The default is all partitions. Repeatable.",
)  # fmt: skip
@click.option(
    "--offset", metavar="OFFSET",
    help="Begin at this offset: a number (requires one --partition), earliest, latest, or an ISO "
    "time. A negative number counts from the end: -10 begins ten offsets before the end of each "
    "partition. Excludes --timestamp and --from-beginning.",
)  # fmt: skip
@click.option(
    "--timestamp", metavar="TIME",
    help="Begin at the first record whose timestamp is at or after this time, in ms since the "
    "epoch or in ISO form (2013-07-03T14:00Z, UTC unless it has a zone).",
)  # fmt: skip
@click.option(
    "--from-beginning", is_flag=True,
    help="Begin at the log start. This is the default without --follow.",
)  # fmt: skip
@click.option(
    "-f", "--follow", is_flag=True,
    help="Wait for records that are committed later, until Ctrl-C. Without another start, begin at "
    "the end of the log.",
)  # fmt: skip
@click.option(
    "--max-messages", type=click.IntRange(1), metavar="N",
    help="Stop after this many records. The default is no limit.",
)  # fmt: skip
@click.option(
    "--timeout-ms", type=click.IntRange(0), metavar="MS",
    help="Stop when no record has arrived for this many milliseconds. Applies to --follow. The "
    "default is to wait until Ctrl-C.",
)  # fmt: skip
@click.option(
    "--isolation-level", type=click.Choice(ISOLATION), default="read_uncommitted",
    show_default=True, help="Set the isolation level. `read_committed` leaves out the "
    "records of aborted transactions, and stops before the first open transaction.",
)  # fmt: skip
@click.option(
    "--timeline", type=click.Choice(TIMELINES), default="all", show_default=True,
    help="Select the records to print. `current` leaves out the micro-batches that were abandoned "
    "when their query was reset to an earlier batch.",
)  # fmt: skip
@click.option(
    "--group", metavar="NAME",
    help="Read as a member of this consumer group: begin at its committed offsets, unless a start "
    "is given, and commit the offsets of printed records. Not possible in an archive or a "
    "broker's directory, which store no groups. The default is to commit no offsets.",
)
@click.option(
    "--formatter", "form", callback=_formatter, default="text", show_default=True,
    metavar="|".join(FORMATS),
    help="Select the output format. `text` prints a record per line as Kafka's console consumer "
    "does, `hex` prints keys and values in hexadecimal, `json` prints a JSON object per line, and "
    "`raw` prints the bytes of the values without separators.",
)  # fmt: skip
@click.option(
    "--json", "as_json", is_flag=True,
    help="Print a JSON object per line, as --formatter json does.",
)  # fmt: skip
@click.option(
    "--property", "--formatter-property", "properties", multiple=True, metavar="KEY=VALUE",
    help="Set a property of the formats text and hex: print.key, print.value, print.headers, "
    "print.timestamp, print.offset, print.partition (true or false), key.separator, "
    "line.separator, headers.separator, null.literal, key.deserializer, value.deserializer "
    "(String, ByteArray, Long, Integer or Short). The default prints only values. Repeatable.",
)  # fmt: skip
@click.option("--key", metavar="TEXT", help="Print only records with this key.")
@click.option(
    "--key-regex", metavar="RE2",
    help="Print only records whose key contains a match of this regular expression.",
)  # fmt: skip
@click.option(
    "--value-regex", metavar="RE2",
    help="Print only records whose value contains a match of this regular expression.",
)  # fmt: skip
@click.option(
    "--header", "headers", metavar="KEY[=VALUE]", multiple=True,
    help="Print only records with this header, with any value or the given one. Repeatable; a "
    "record must then have all of these headers.",
)  # fmt: skip
@click.option(
    "--header-regex", "header_regexes", metavar="KEY=RE2", multiple=True,
    help="Print only records with a header of this name whose value contains a match of this "
    "regular expression. Repeatable.",
)  # fmt: skip
@access_options
def consume(
    path: str,
    topic: str,
    partitions: Sequence[int],
    offset: str | None,
    timestamp: str | None,
    from_beginning: bool,
    follow: bool,
    max_messages: int | None,
    timeout_ms: int | None,
    isolation_level: str,
    timeline: str,
    group: str | None,
    form: str,
    as_json: bool,
    properties: Sequence[str],
    key: str | None,
    key_regex: str | None,
    value_regex: str | None,
    headers: Sequence[str],
    header_regexes: Sequence[str],
    access: StoreAccess,
) -> int:
    """Print the records of a topic, like kafka-console-consumer.

    Unlike Kafka's tool, the command begins at the log start and stops at the current end of the
    log. With --follow it begins at the end and waits for more records, as Kafka's tool does. With
    several filters (--key, --header, ...) it prints the records that match all of them. The exit
    code is 1 if the command finds a damaged record batch; the records before it have been printed.
    """
    layout = Layout.parse(parse_properties(properties, "--property"))
    write, columns = formatter("json" if as_json else form, layout)
    match = Match(
        key=None if key is None else os.fsencode(key),  # the bytes that were typed
        key_regex=key_regex,
        value_regex=value_regex,
        headers=[_header(text) for text in headers],
        header_regexes=[_header_regex(text) for text in header_regexes],
    )
    with contextlib.ExitStack() as stack:
        stop = stack.enter_context(stop_signal())

        def stopped() -> bool:
            return stop.is_set() or _has_no_reader()

        # `stopped` also ends the wait for a store, so that Ctrl-C works before the first record.
        log = stack.enter_context(to_read(path, access, stopped=stopped))
        start = _start(offset, timestamp, from_beginning, follow, partitions, log, topic)
        request = ConsumeRequest(
            topic=topic, partitions=partitions or None, start=start, isolation=isolation_level,
            columns=columns, match=match, max_messages=max_messages, follow_on=follow,
            timeout_ms=timeout_ms, group=group, timeline=timeline,
        )  # fmt: skip
        count = _print(read(log, request, stopped), write, stopped=stopped)
    if count is not None:
        click.echo(pluralize(count, "record"), err=True)
    return EXIT_OK


def _header(text: str) -> tuple[str, bytes | None]:
    key, equals, value = text.partition("=")
    return key, os.fsencode(value) if equals else None


def _header_regex(text: str) -> tuple[str, str]:
    key, equals, pattern = text.partition("=")
    if not equals:
        raise click.BadParameter(
            f"{text!r} must have the form KEY=RE2",
            param_hint="'--header-regex'",
        )
    return key, pattern


def _print(found: Any, write: Any, *, stopped: Callable[[], bool]) -> int | None:
    """Write batch after batch, and return the number of records.

    The number is None if the process that reads the output has ended, because then it is unknown.

    Args:
        found: The batches.
        write: Formats a batch.
        stopped: Returns True after a signal. A signal ends a wait for a store, which is then not an
            error.
    """
    count, out = 0, sys.stdout.buffer
    try:
        for rows in found:
            out.write(visible_bytes(write(rows), sys.stdout))
            # After each batch: a reader of the pipe sees records at once, and with --group the
            # offsets of a batch are committed only after the batch was printed.
            out.flush()
            count += rows.num_rows
    except BrokenPipeError:
        # The reader is closed, not resumed: with --group it would commit the offsets of a batch
        # that was not printed.
        found.close()
        drop_output()
        return None
    except StorageUnavailableError:
        if not stopped():
            raise
    # The reader may have ended while the command waited for records, without a failed write.
    return None if _has_no_reader() else count


def _has_no_reader() -> bool:
    """Return True if standard output is a pipe without a reader, as `tail -f` checks."""
    try:
        poll = select.poll()
        # No event is requested, because poll reports POLLERR in any case, and a pipe with free
        # space would always be ready for POLLOUT.
        poll.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError):  # not a file
        return False
    return any(events & select.POLLERR for _, events in poll.poll(0))


def _start(
    offset: str | None,
    timestamp: str | None,
    from_beginning: bool,
    follow: bool,
    partitions: Sequence[int],
    log: Log,
    topic: str,
) -> Position:
    given = [offset is not None, timestamp is not None, from_beginning]
    if sum(given) > 1:
        raise click.UsageError("--offset, --timestamp and --from-beginning exclude each other")
    if timestamp is not None:
        return parse_when(timestamp, "--timestamp")
    if from_beginning or (offset is None and not follow):
        return "earliest"
    if offset is None or offset == "latest":
        return "latest"
    if offset == "earliest":
        return "earliest"
    number = offset.removeprefix("-")
    # The largest offset, 2**63 - 1, has 19 digits.
    if not (number.isascii() and number.isdecimal() and len(number) < 20):
        return parse_when(offset, "--offset", _OFFSETS)
    numbers = partitions or view_of(log).partitions(topic)
    if offset.startswith("-"):
        spans = log.offsets(topic)
        known = [spans.get(number, (0, 0)) for number in numbers]
        return {
            number: max(start, end + int(offset))
            for number, (start, end) in zip(numbers, known, strict=True)
        }
    if len(numbers) != 1:
        raise click.UsageError("--offset with a number requires --partition exactly once")
    return {numbers[0]: int(offset)}
