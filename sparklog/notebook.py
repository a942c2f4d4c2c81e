"""How results show in Jupyter and its like: tables for `_repr_html_`."""

from collections.abc import Iterable, Sequence
from typing import Final

from sparklog.html import Child, Html, el

_ROWS_MAX: Final = 50


def table(
    caption: Child,
    columns: Sequence[str],
    rows: Sequence[Sequence[Child]],
    *,
    notes: Iterable[str] = (),
) -> str:
    """Return an HTML table for `_repr_html_`, of the first 50 rows; all texts are escaped.

    Notebooks bring the style, and take none from a cell that isn't trusted.
    """
    head = el("tr", [el("th", name, scope="col", style="text-align:left") for name in columns])
    body = [
        el("tr", [el("td", cell, style="text-align:left") for cell in row])
        for row in rows[:_ROWS_MAX]
    ]
    left = len(rows) - _ROWS_MAX
    said = [*notes, *([f"{left} more of {len(rows)}"] if left > 0 else [])]
    whole = el("table", el("caption", caption, style="text-align:left"), el("thead", head),
               el("tbody", body))  # fmt: skip
    return Html.join([whole if rows else el("p", caption), *(el("p", note) for note in said)])
