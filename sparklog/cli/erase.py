"""`sparklog erase`: erases records by key from all tiers and reports the result."""

import base64
import codecs
import json
import os
from collections.abc import Iterator, Sequence
from typing import IO

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table

from sparklog.cli.command import Command
from sparklog.cli.exit_codes import EXIT_FAILED, EXIT_OK
from sparklog.cli.open_log import check_dry_run, check_log
from sparklog.cli.output import console, print_json
from sparklog.cli.parsing import parse_properties, parse_time
from sparklog.cli.storage import StoreAccess, keyring_option, parse_storage_options, storage_option
from sparklog.pluralize import pluralize
from sparklog.quantities import size_text
from sparklog.service.erasure import erase as erase_records
from sparklog.service.service import WAIT_MS
from sparklog.storage.erasure_report import ErasedOffsets, ErasureReport
from sparklog.tiered.keyring import Keyring

_RANGES_SHOWN = 3
_WANTED = 'the file must contain a JSON array of strings or of {"base64": "..."}'


@click.command(cls=Command)
@click.argument("path")
@click.option(
    "--topic", metavar="NAME", required=True,
    help="Erase records of this topic. Its cleanup.policy does not matter.",
)  # fmt: skip
@click.option(
    "--key", "keys", metavar="TEXT", multiple=True,
    help="Erase the records with this key, in UTF-8. Repeatable.",
)  # fmt: skip
@click.option(
    "--key-base64", "encoded", multiple=True, metavar="TEXT",
    help="Erase the records with this key, encoded in base64. Repeatable.",
)  # fmt: skip
@click.option(
    "--key-hex", "hexed", multiple=True, metavar="TEXT",
    help="Erase the records with this key, encoded in hexadecimal. Repeatable.",
)  # fmt: skip
@click.option(
    "--key-file", type=click.File("rb"), metavar="FILE",
    help='Erase the records with the keys in this file, one key per line. "-" is standard input.',
)  # fmt: skip
@click.option(
    "--keys-json", type=click.File("rb"), metavar="FILE",
    help="Erase the records with the keys in this file, which contains a JSON array. A key is a "
    'string or {"base64": "..."}. "-" is standard input.',
)  # fmt: skip
@click.option("--null-key", is_flag=True, help="Erase the records without a key as well.")
@click.option("--partition", "partitions", multiple=True, type=click.IntRange(0),
              metavar="N",
              help="Erase only records of this partition. The default is all partitions. "
              "Repeatable.")  # fmt: skip
@click.option("--before", metavar="OFFSET|TIME",
              help="Erase only records before this offset, or with a timestamp before this time in "
              "ISO form (2013-07-03T14:00Z, UTC unless it has a zone). The default is all "
              "records.")  # fmt: skip
@click.option("--option", "options", multiple=True, metavar="KEY=VALUE",
              help="Set an option of the service under its Kafka name (docs/options.md). "
              "Repeatable.")  # fmt: skip
@click.option("--wait", "wait_s", type=click.FloatRange(min=0), default=WAIT_MS / 1000,
              metavar="SECONDS", show_default=True,
              help="Wait at most this many seconds for a service in another process to pause its "
              "work for the erasure.")  # fmt: skip
@click.option(
    "--dry-run", is_flag=True,
    help="Count the records that would be erased, and change nothing.",
)  # fmt: skip
@storage_option
@keyring_option
@click.option(
    "--json", "as_json", is_flag=True,
    help="Print the report as one JSON document, which can be kept as proof of the erasure.",
)  # fmt: skip
def erase(
    path: str,
    topic: str,
    keys: Sequence[str],
    encoded: Sequence[str],
    hexed: Sequence[str],
    key_file: IO[bytes] | None,
    keys_json: IO[bytes] | None,
    null_key: bool,
    partitions: Sequence[int],
    before: str | None,
    options: Sequence[str],
    wait_s: float,
    dry_run: bool,
    storage_options: str,
    keyring: str | None,
    as_json: bool,
) -> int:
    """Erase all records with given keys from a topic permanently, for example for the GDPR.

    Records with one of the keys that were committed before the command began are erased from local
    segments, from their copies in remote storage, from the objects and ledger entries of a log in a
    bucket, and from segments that wait for their deletion. Other records and all offsets are
    unchanged. At least one key or --null-key is required. The exit code is 1 if some records could
    not be erased yet; the report lists them, and the same command continues the erasure.
    """
    wanted = [os.fsencode(key) for key in keys]  # the bytes that were typed
    wanted += [_decoded(text) for text in encoded]
    wanted += [_from_hex(text) for text in hexed]
    wanted += [] if key_file is None else _lines(key_file)
    wanted += [] if keys_json is None else _listed(keys_json)
    if not wanted and not null_key:
        raise click.UsageError(
            "no key is named: --key, --key-base64, --key-hex, --key-file, --keys-json or "
            "--null-key is required"
        )
    # Before the log is opened: a mistyped option must not wait for another process's service.
    offset, time_ms = _bound(before)
    storage = parse_storage_options(storage_options)
    check_log(path, StoreAccess(storage), archives=False)
    check_dry_run(path, dry_run=dry_run)
    report = erase_records(
        path, topic, wanted, partitions=partitions or None, null_key=null_key, before=offset,
        before_ms=time_ms, dry_run=dry_run, wait_ms=wait_s * 1000, storage_options=storage,
        waiting=lambda holder: click.echo(f"waiting for {holder}", err=True),
        keyring=None if keyring is None else Keyring.load(keyring),
        options=parse_properties(options, "--option"),
    )  # fmt: skip
    if as_json:
        print_json(report.to_dict())
    else:
        _show(report)
    # Pending places are no failure of a dry run, which erases nothing.
    failed = [*report.errors, *(part.error for part in report.partitions if part.error)]
    return EXIT_FAILED if failed or (report.pending and not dry_run) else EXIT_OK


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:  # binascii.Error is a ValueError
        raise click.BadParameter(f"{text!r} is not base64", param_hint="'--key-base64'") from None


def _from_hex(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not hexadecimal", param_hint="'--key-hex'") from None


def _lines(file: IO[bytes]) -> list[bytes]:
    """Return a key per line; empty lines are skipped."""
    text = file.read().removeprefix(codecs.BOM_UTF8)
    # Split at line feeds only, because a carriage return may be part of a key.
    return [line for each in text.split(b"\n") if (line := each.removesuffix(b"\r"))]


def _listed(file: IO[bytes]) -> list[bytes]:
    try:
        found = json.loads(file.read())
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list):
        raise click.BadParameter(_WANTED, param_hint="'--keys-json'")
    return list(_each(found))


def _each(found: list[object]) -> Iterator[bytes]:
    for one in found:
        if isinstance(one, str):
            yield _encoded(one)
        elif isinstance(one, dict) and isinstance(one.get("base64"), str):
            yield _decoded(one["base64"])
        else:
            raise click.BadParameter(f"{one!r} is not a key; {_WANTED}", param_hint="'--keys-json'")


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise click.BadParameter(
            f"{text!r} contains an unpaired surrogate: encode the key in base64",
            param_hint="'--keys-json'",
        ) from None


def _bound(before: str | None) -> tuple[int | None, int | None]:
    """Parse --before, and return (offset, None) or (None, time in ms since the epoch)."""
    # The largest offset, 2**63 - 1, has 19 digits.
    if before is not None and before.isascii() and before.isdigit() and len(before) < 20:
        return int(before), None
    return None, parse_time(before, "--before")


def _show(report: ErasureReport) -> None:
    would = "would be " if report.dry_run else ""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("partition", "records", "offsets", "place", "rewritten", "bytes"):
        table.add_column(name, justify="left" if name in ("offsets", "place") else "right",
                         overflow="fold")  # fmt: skip
    for part in report.partitions:
        first = True
        for place in sorted({one.place for one in part.erased_from}):
            ones = [one for one in part.erased_from if one.place == place]
            before, after = sum(o.bytes_before for o in ones), sum(o.bytes_after for o in ones)
            sizes = size_text(before) if report.dry_run else (
                f"{size_text(before)} to {size_text(after)}"
            )  # fmt: skip
            table.add_row(
                str(part.partition) if first else "", str(part.records) if first else "",
                _offsets_text(part.offsets) if first else "", place, str(len(ones)), sizes,
            )  # fmt: skip
            first = False
    if table.row_count:
        console().print(table)
    read, took_s = size_text(report.bytes_read), report.took_ms / 1000
    click.echo(f"{report.topic}: {pluralize(report.records, 'record')} {would}erased; {read} "
               f"read in {took_s:.1f} s")  # fmt: skip
    removed = [one for part in report.partitions for one in part.removed]
    if removed:
        click.echo(f"{pluralize(len(removed), 'file or object', 'files and objects')} {would}"
                   "deleted that may have held such records")  # fmt: skip
    for part in report.partitions:
        if part.error is not None:
            click.echo(f"failed: {report.topic}-{part.partition}: {part.error}", err=True)
    for error in report.errors:
        click.echo(f"failed: {error}", err=True)
    for left in report.pending:
        click.echo(f"left: {left}", err=True)
    for text in report.not_covered:
        click.echo(f"not covered: {text}")


def _offsets_text(offsets: ErasedOffsets) -> str:
    shown = [
        str(first) if end == first + 1 else f"{first} to {end - 1}"
        for first, end in offsets.ranges[:_RANGES_SHOWN]
    ]
    more = len(offsets.ranges) - len(shown) + (1 if offsets.more else 0)
    return ", ".join(shown) + (f" and {pluralize(more, 'more range')}" if more > 0 else "")
