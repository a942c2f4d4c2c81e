"""Arrow tables as commands show them: chosen rows, for people or for scripts."""

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from sparklog.cli.output import console
from sparklog.cli.terminal import one_row

_NUMBERS: Final = (
    "partition", "offset", "log_start", "high_watermark", "lag", "batch", "first", "end",
)  # fmt: skip


def only(table: pa.Table, **wanted: str | None) -> pa.Table:
    """Return the rows whose columns have these values; None: any."""
    for name, value in wanted.items():
        if value is not None:
            table = table.filter(pc.equal(table[name], value))
    return table


def as_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Return rows for scripts: times in ms since the epoch."""
    at = table.schema.get_field_index("time")
    return list(table.set_column(at, "time", table["time"].cast(pa.int64())).to_pylist())


def show(table: pa.Table, columns: Sequence[str]) -> None:
    """Print columns for people."""
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
    return one_row(str(value))
