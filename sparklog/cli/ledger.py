"""`sparklog readers` and `sparklog commits`: who reads the log how far, and who wrote what."""

from collections.abc import Sequence
from typing import Any

import click
import pyarrow as pa
import pyarrow.compute as pc
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from sparklog.cli.command import Command
from sparklog.cli.exit_codes import EXIT_FAILED, EXIT_OK
from sparklog.cli.open_log import to_read
from sparklog.cli.output import console, print_json
from sparklog.cli.storage import Reach, reach_options

_NUMBERS = ("partition", "offset", "log_start", "high_watermark", "lag", "batch", "first", "end")


@click.command(cls=Command)
@click.argument("path")
@click.option("--topic", help="Only this one.")
@click.option("--group", help="Only this one.")
@click.option("--delete", metavar="GROUP", help="Forget a group, so that nothing waits for it.")
@reach_options
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def readers(
    path: str, topic: str | None, group: str | None, delete: str | None, reach: Reach, as_json: bool
) -> int:
    """Show how far streaming queries and other registered readers of the log at PATH are.

    The lag is what lies between a reader and the high watermark. (kafka-consumer-groups)
    """
    with to_read(path, reach, archives=False) as log:
        if delete is not None:
            if topic is not None or group is not None:
                raise click.UsageError("--delete goes alone")
            known = log.delete_reader(delete)
            if as_json:
                print_json({"deleted": [delete] if known else []})
            else:
                said = "forgotten" if known else "is no reader of this log"
                click.echo(f"group {delete}: {said}", err=not known)
            return EXIT_OK if known else EXIT_FAILED
        table = _only(log.readers(), topic=topic, group=group)
    if as_json:
        print_json(_rows(table))
        return EXIT_OK
    if not table.num_rows:
        click.echo("no reader is registered" + (" there" if topic or group else ""))
        return EXIT_OK
    _show(table, ["group", "kind", "topic", "partition", "offset", "log_start", "high_watermark",
                  "lag", "time", "expired"])  # fmt: skip
    return EXIT_OK


@click.command(cls=Command)
@click.argument("path")
@click.option("--writer", help="Only this writer's, or all sinks of the query with this id.")
@click.option("--topic", help="Only this one.")
@click.option("--last", metavar="N", type=click.IntRange(1), help="Only the newest N commits.")
@reach_options
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def commits(
    path: str, writer: str | None, topic: str | None, last: int | None, reach: Reach, as_json: bool
) -> int:
    """Show which micro-batch wrote which offsets of the log at PATH, from its ledger."""
    with to_read(path, reach, archives=False) as log:
        table = log.commits()
    if writer is not None:
        mine = pc.equal(table["writer"], writer)
        sinks = pc.starts_with(table["writer"], f"{writer}/")
        table = table.filter(pc.or_(mine, sinks))
    table = _only(table, topic=topic)
    if last is not None:
        newest = pc.unique(table["offset"])[-last:]
        table = table.filter(pc.is_in(table["offset"], value_set=newest))
    if as_json:
        print_json(_rows(table))
        return EXIT_OK
    if not table.num_rows:
        click.echo("no commit is in the ledger" + (" of these" if writer or topic else ""))
        return EXIT_OK
    _show(table, ["offset", "time", "kind", "writer", "batch", "topic", "partition", "first",
                  "end"])  # fmt: skip
    return EXIT_OK


def _only(table: pa.Table, **wanted: str | None) -> pa.Table:
    for name, value in wanted.items():
        if value is not None:
            table = table.filter(pc.equal(table[name], value))
    return table


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    """Rows for scripts: times in ms since the epoch."""
    at = table.schema.get_field_index("time")
    return list(table.set_column(at, "time", table["time"].cast(pa.int64())).to_pylist())


def _show(table: pa.Table, columns: Sequence[str]) -> None:
    shown = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        shown.add_column(name.replace("_", " "), overflow="fold",
                         justify="right" if name in _NUMBERS else "left")  # fmt: skip
    for row in table.select(columns).to_pylist():
        shown.add_row(*(Text(_cell(row[name])) for name in columns))
    console().print(shown)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if hasattr(value, "isoformat"):
        return str(value.isoformat(sep=" ", timespec="seconds")).removesuffix("+00:00") + "Z"
    return str(value)
