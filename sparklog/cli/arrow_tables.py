"""Arrow tables in the output of commands: row selection, and text or JSON."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.cli.output import print_table


def only(table: pa.Table, **wanted: str | None) -> pa.Table:
    """Return the rows with these values in their columns; a None matches all rows."""
    for name, value in wanted.items():
        if value is not None:
            table = table.filter(pc.equal(table[name], value))
    return table


def as_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Return rows for JSON; times are in ms since the epoch."""
    at = table.schema.get_field_index("time")
    return list(table.set_column(at, "time", table["time"].cast(pa.int64())).to_pylist())


def show(table: pa.Table, columns: Sequence[str]) -> None:
    """Print columns as a table."""
    rows = table.select(columns).to_pylist()
    print_table([name.replace("_", " ") for name in columns], [list(row.values()) for row in rows])
