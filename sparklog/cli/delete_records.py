"""`sparklog delete-records`: raises log start offsets, like kafka-delete-records."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import IO

import click

from sparklog.cli.exit_codes import EXIT_FAILED, EXIT_OK
from sparklog.cli.kafka_tools import KafkaTool
from sparklog.cli.open_log import to_change
from sparklog.cli.output import print_json
from sparklog.cli.parsing import read_text
from sparklog.cli.storage import StoreAccess, access_options
from sparklog.tools.delete_records import (
    Offsets,
    delete_records,
    offsets_by_partition,
    parse_offset,
    parse_offset_json,
)


@click.command("delete-records", cls=KafkaTool)
@click.argument("path")
@click.option(
    "--offset-json-file", type=click.File("r", encoding="utf-8"), metavar="FILE",
    help="Read partitions and offsets from this JSON file, as kafka-delete-records does: "
    '{"partitions": [{"topic": "t", "partition": 0, "offset": 5}], "version": 1}. "-" is standard '
    "input. Excludes --offset.",
)  # fmt: skip
@click.option(
    "--offset", "offsets", multiple=True, metavar="TOPIC:PARTITION:OFFSET",
    help="Delete the records of a partition before this offset. The offset -1 deletes all "
    "committed records. Repeatable.",
)  # fmt: skip
@access_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def delete(
    path: str,
    offset_json_file: IO[str] | None,
    offsets: Sequence[str],
    access: StoreAccess,
    as_json: bool,
) -> int:
    """Delete the records of partitions before an offset, permanently, by raising the log start.

    The records are hidden from readers at once. The service (`sparklog serve`) deletes their
    segments in its next round. The exit code is 1 if a partition failed.
    """
    if (offset_json_file is None) == (not offsets):
        raise click.UsageError("pass either --offset-json-file or --offset")
    wanted: Offsets = (
        offsets_by_partition(parse_offset(text) for text in offsets)
        if offset_json_file is None
        else parse_offset_json(read_text(offset_json_file, "--offset-json-file"))
    )
    with to_change(path, access=access) as log:
        done = delete_records(log, wanted)
    failed = any(each.error is not None for each in done)
    if as_json:
        print_json([asdict(each) for each in done])
        return EXIT_FAILED if failed else EXIT_OK
    for each in done:
        outcome = f"begins at {each.low_watermark}" if each.error is None else each.error
        click.echo(f"{each.topic}-{each.partition}: {outcome}", err=each.error is not None)
    return EXIT_FAILED if failed else EXIT_OK
