"""Output of commands: tables for people, JSON for scripts."""

import contextlib
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

import click
import pyarrow as pa
import pyarrow.compute as pc
import rich.progress
from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TransferSpeedColumn,
)
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from sparklog.cli.terminal import one_row, plain_stream, visible
from sparklog.progress import Progress

_PIPED_COLUMNS: Final = 200  # width without a terminal


def console(*, err: bool = False) -> Console:
    """Return a console as wide as the terminal, or wide enough for `grep`."""
    stream = plain_stream(sys.stderr if err else sys.stdout)
    width = None if stream.isatty() else _PIPED_COLUMNS
    return _Console(file=stream, width=width, highlight=False)


class _Console(Console):
    """A console that applies styles and makes control characters in untrusted texts visible."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for text, style, control in super().render(renderable, options):
            # Control segments, such as cursor movements, come from rich itself and not from the
            # log.
            yield Segment(text if control else visible(text), style, control)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print rows as a table; columns of numbers are aligned to the right."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for number, name in enumerate(columns):
        kinds = {type(row[number]) for row in rows}
        is_number = int in kinds and kinds <= {int, type(None)}
        table.add_column(name, overflow="fold", justify="right" if is_number else "left")
    for row in rows:
        table.add_row(*(Text(_cell(value)) for value in row))
    console().print(table)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if hasattr(value, "isoformat"):
        return str(value.isoformat(sep=" ", timespec="seconds")).removesuffix("+00:00") + "Z"
    return one_row(str(value))


def print_json(document: Any) -> None:
    """Print a JSON document."""
    click.echo(json.dumps(document, indent=2, ensure_ascii=False))


def print_event(event: str, path: str, *, as_json: bool, **urls: str) -> None:
    """Print an event of a server: a line of JSON, or text on stderr."""
    if as_json:
        click.echo(json.dumps({"event": event, "path": path, **urls}))
    else:
        addresses = "".join(f", {name} at {url}" for name, url in urls.items())
        click.echo(f"{event} {path}{addresses}", err=True)


def bytes_bar(what: str, *, shown: bool) -> AbstractContextManager[Progress | None]:
    """Return a progress bar of bytes on stderr, if stderr is a terminal."""
    return _bar(what, DownloadColumn(), TransferSpeedColumn(), shown=shown)


def count_bar(what: str, *, shown: bool) -> AbstractContextManager[Progress | None]:
    """Return a progress bar of (done, total) items on stderr, if stderr is a terminal."""
    return _bar(what, MofNCompleteColumn(), TimeElapsedColumn(), shown=shown)


@contextlib.contextmanager
def _bar(what: str, *columns: ProgressColumn, shown: bool) -> Iterator[Progress | None]:
    err = console(err=True)
    if not shown or not err.is_terminal:
        yield None
        return
    shape = (TextColumn(what), BarColumn(), *columns)
    with rich.progress.Progress(*shape, console=err, transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def matching_rows(table: pa.Table, **wanted: str | None) -> pa.Table:
    """Return the rows of a table that have the given values in the given columns.

    The value None matches all rows.
    """
    for name, value in wanted.items():
        if value is not None:
            table = table.filter(pc.equal(table[name], value))
    return table


def print_arrow(
    table: pa.Table, columns: Sequence[str], without: str, *, as_json: bool
) -> None:
    """Print rows as a table or as JSON, or the text `without` if there is no row.

    JSON has times in ms since the epoch. The column `query` is left out of the table if no row has
    a query.
    """
    if as_json:
        at = table.schema.get_field_index("time")
        print_json(table.set_column(at, "time", table["time"].cast(pa.int64())).to_pylist())
        return
    if not table.num_rows:
        click.echo(without)
        return
    if table["query"].null_count == table.num_rows:
        columns = [name for name in columns if name != "query"]
    rows = table.select(columns).to_pylist()
    print_table([name.replace("_", " ") for name in columns], [list(row.values()) for row in rows])
